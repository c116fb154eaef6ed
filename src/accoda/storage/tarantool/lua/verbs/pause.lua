-- Hands out nothing of a queue until a moment, or until it is resumed. A moment that has gone resumes it.
--
-- arguments: now, name of the queue, moment or nil
-- answer: true
local app = ...

app.verbs.pause = app.atomic(function(tx, name, moment)
    local paused = moment == nil or moment > tx.now
    if not paused and app.find_queue(name) == nil then
        return true -- to resume a queue does not make it
    end
    app.make_queue(name)
    local ends_at = paused and moment ~= nil and moment or box.NULL
    box.space.accoda_queues.index.name:update(name, {{'=', 'paused', paused}, {'=', 'paused_until', ends_at}})
    tx.touched[name] = true -- the end of the pause is a new moment to wake at
    return true
end)
