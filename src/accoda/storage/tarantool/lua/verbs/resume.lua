-- Ends a pause.
--
-- arguments: now, name of the queue
-- answer: true
local app = ...

app.verbs.resume = app.atomic(function(tx, name)
    local queue = app.find_queue(name)
    if queue ~= nil and queue.paused then
        box.space.accoda_queues:update(queue.no, {{'=', 'paused', false}, {'=', 'paused_until', box.NULL}})
        tx.touched[name] = true
    end
    return true
end)
