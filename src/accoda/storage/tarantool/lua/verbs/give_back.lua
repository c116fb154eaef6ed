-- Undoes a take whose caller was cancelled before it got the answer: nobody knows the token, so it may stay.
--
-- arguments: now, name of the queue, leases {{id, attempts}, …}
-- answer: how many were given back
local app = ...
local f = app.field

app.verbs.give_back = app.atomic(function(tx, name, leases)
    local queue = app.find_queue(name)
    local given = 0
    for _, lease in ipairs(queue == nil and {} or leases) do
        local job = app.held(tx, queue[1], lease[1], lease[2])
        if job ~= nil then
            box.space.accoda_jobs:update(lease[1], {{'=', f.STATE, app.READY}, {'=', f.SORT, job[f.RANK]}})
            given = given + 1
        end
    end
    if given > 0 then
        app.count(tx, queue[1], app.COUNTS + app.TAKEN, -given)
        app.count(tx, queue[1], app.COUNTS + app.READY, given)
        tx.touched[name] = true
    end
    return given
end)
