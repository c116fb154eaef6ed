-- Makes each current lease end `lease` ms from now.
--
-- arguments: now, names {queue, …}, leases {{queue, id, attempts, taken_at}, …}, lease in ms
-- answer: {{position, why}, …} of those that were refused; why: as for settle
local app = ...
local f = app.field

app.verbs.extend = app.atomic(function(tx, names, leases, lease)
    local numbers, refused = app.numbers_of(names), {}
    for position, each in ipairs(leases) do
        local no = numbers[each[1]]
        if app.held(tx, no, each[2], each[3], each[4]) == nil then
            refused[#refused + 1] = {position, app.why_lost(tx, no, each[2], each[3], each[4])}
        else
            box.space.accoda_jobs:update(each[2], {{'=', f.SORT, tx.now + tonumber(lease)}})
            tx.touched[names[each[1]]] = true -- its end may have come nearer
        end
    end
    return refused
end)
