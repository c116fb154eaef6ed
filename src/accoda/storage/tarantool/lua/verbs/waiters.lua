-- Those who wait for a taken job, in the order in which they joined.
--
-- arguments: now, name of the queue, id, attempts
-- answer: {data, …}; empty if the lease is lost
local app = ...

app.verbs.waiters = app.atomic(function(tx, name, id, attempts)
    local queue, found = app.find_queue(name), {}
    if queue ~= nil and app.held(tx, queue[1], id, attempts) ~= nil then
        for i, waiter in ipairs(box.space.accoda_waiters:select({id})) do
            found[i] = waiter[3]
        end
    end
    return found
end)
