-- Counts of every queue, from the counters.
--
-- arguments: now
-- answer: {name = QueueStats, …}
local app = ...
local f = app.field

app.verbs.stats = app.atomic(function(tx)
    local queues, age = box.space.accoda_queues, box.space.accoda_jobs.index.age
    for _, queue in ipairs(queues:select()) do
        app.apply_due_of(tx, queue.no)
    end
    app.flush(tx)
    local answer = setmetatable({}, {__serialize = 'map'}) -- else no queue at all would be a list
    for _, q in ipairs(queues:select()) do
        local moment = app.paused_until(q, tx.now)
        local oldest = age:min({q.no, app.READY}) -- ids grow, so it is the one with the lowest
        answer[q.name] = {
            total = q.ready + q.held + q.delayed + q.taken + q.dead, ready = q.ready, held = q.held,
            delayed = q.delayed, taken = q.taken, dead = q.dead,
            oldest_age = oldest == nil and 0 or math.max(0, tx.now - tonumber(oldest[f.CREATED_AT])) / 1000,
            done = q.done, retried = q.retried, buried = q.buried, expired = q.expired, cancelled = q.cancelled,
            promoted = q.promoted,
            paused = moment ~= nil,
            paused_until = moment ~= math.huge and moment or nil,
        }
    end
    return answer
end)
