-- Deletes jobs of a queue in a state, the oldest first. Those that report and were not done or cancelled are reported as
-- removed.
--
-- arguments: now, receipt, name of the queue, state, before: a moment or nil, limit: at most so many; nil: as many as one
--            step may, so that a large queue does not stop the server
-- answer: {how many, how many more to delete at most: 0 with a limit, the present moment}. In their places held jobs may be
--         ready now; the caller, who goes on with a limit, does not delete all of these, too.
--
-- Jobs that have ended are in the order of their ends in `line`, the others in that of their ids, which grow with time.
local app = ...
local f = app.field
local AT_ONCE = 1000

app.verbs.purge = app.once(function(tx, name, state, before, limit)
    local queue = app.find_queue(name)
    if queue == nil then
        return {0, 0, tx.now}
    end
    app.apply_due(tx, queue)
    local ended = state >= app.DEAD
    local index, since = ended and 'line' or 'age', ended and f.ENDED_AT or f.CREATED_AT
    index = box.space.accoda_jobs.index[index]
    local found = index:select({queue[1], state}, {limit = limit == nil and AT_ONCE or limit})
    for i, job in ipairs(found) do
        if before ~= nil and (job[since] or 0) >= before then
            return {i - 1, 0, tx.now}
        end
        app.remove(tx, job)
        tx.touched[name] = tx.touched[name] or true -- one that ran makes room
    end
    local goes_on = limit == nil and #found == AT_ONCE
    return {#found, goes_on and index:count({queue[1], state}) or 0, tx.now}
end)
