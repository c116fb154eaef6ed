-- Counts of every queue, from the counters.
--
-- arguments: now
-- answer: {{name, ready, delayed, taken, dead, done, retried, buried, expired, paused, paused_until or nil,
--           age of the oldest ready job in ms}, …}
local app = ...
local f = app.field

app.verbs.stats = app.atomic(function(tx)
    local queues, age = box.space.accoda_queues, box.space.accoda_jobs.index.age
    for _, queue in ipairs(queues:select()) do
        app.end_the_endless(tx, queue[1])
        app.apply_due(tx, queue)
    end
    app.flush(tx)
    local answer = {}
    for i, q in ipairs(queues:select()) do
        local moment = app.paused_until(q, tx.now)
        -- Ids grow, so the oldest job is the one with the lowest.
        local oldest = age:min({q.no, app.READY})
        answer[i] = {
            q.name, q.ready, q.delayed, q.taken, q.dead, q.done, q.retried, q.buried, q.expired,
            moment ~= nil, (moment == nil or moment == math.huge) and box.NULL or moment,
            oldest == nil and 0 or math.max(0, tx.now - oldest[f.CREATED_AT]),
        }
    end
    return answer
end)
