-- Hands out nothing of a queue until a moment, or until it is resumed.
--
-- arguments: now, name of the queue, moment or nil
-- answer: true
local app = ...

app.verbs.pause = app.atomic(function(tx, name, moment)
    local queue = app.make_queue(name)
    if moment == nil then
        moment = box.NULL
    end
    box.space.accoda_queues:update(queue.no, {{'=', 'paused', true}, {'=', 'paused_until', moment}})
    tx.touched[name] = true -- the end of the pause is a new moment to wake at
    return true
end)
