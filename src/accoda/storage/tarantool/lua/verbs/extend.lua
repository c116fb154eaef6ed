-- Makes each current lease end `lease` ms from now.
--
-- arguments: now, names {queue, …}, leases {{queue, id, attempts, taken_at}, …}, lease in ms
-- answer: {position, …} of those that are lost
local app = ...
local f = app.field

app.verbs.extend = app.atomic(function(tx, names, leases, lease)
    local numbers, lost = app.numbers_of(names), {}
    for position, each in ipairs(leases) do
        if app.held(tx, numbers[each[1]], each[2], each[3], each[4]) == nil then
            lost[#lost + 1] = position
        else
            box.space.accoda_jobs:update(each[2], {{'=', f.SORT, tx.now + tonumber(lease)}})
            tx.touched[names[each[1]]] = true -- its end may have come nearer
        end
    end
    return lost
end)
