-- Deletes jobs of a queue in a state, the oldest first: at most `limit` in one step, so that a large queue does not stop
-- the server. Those that report and were not done or cancelled are reported as removed.
--
-- arguments: now, receipt, name of the queue, state, before: a moment or nil, limit
-- answer: {how many, whether there may be more, the present moment}
--
-- Jobs that have ended are in the order of their ends in `line`, the others in that of their ids, which grow with time.
local app = ...
local f = app.field

app.verbs.purge = app.once(function(tx, name, state, before, limit)
    local queue = app.find_queue(name)
    if queue == nil then
        return {0, false, tx.now}
    end
    app.apply_due(tx, queue[1])
    local ended = state >= app.DEAD
    local index, since = ended and 'line' or 'age', ended and f.ENDED_AT or f.CREATED_AT
    local found = box.space.accoda_jobs.index[index]:select({queue[1], state}, {limit = limit})
    for i, job in ipairs(found) do
        if before ~= nil and (job[since] or 0) >= before then
            return {i - 1, false, tx.now}
        end
        app.remove(tx, job)
    end
    return {#found, #found == limit, tx.now}
end)
