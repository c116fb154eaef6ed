-- Those who wait for a taken job, in the order in which they joined.
--
-- arguments: now, name of the queue, id, attempts, whole: true for their tuples (older clients send none)
-- answer: their tuples, or {data, …}; empty if the lease is lost
local app = ...

app.verbs.waiters = app.atomic(function(tx, name, id, attempts, whole)
    local queue = app.find_queue(name)
    if queue == nil or app.held(tx, queue[1], id, attempts) == nil then
        return {}
    end
    local found = app.waiters_after(id, 0)
    for i = 1, whole and 0 or #found do
        found[i] = found[i][3]
    end
    return found
end)
