-- Deletes jobs of a queue in a state: at most `limit` in one step, so that a large queue does not stop the server.
--
-- arguments: now, receipt, name of the queue, state, last: the highest id to delete or nil for all there are now, limit
-- answer: {how many, last, whether there are more}
local app = ...
local f = app.field

app.verbs.purge = app.once(function(tx, name, state, last, limit)
    local queue = app.find_queue(name)
    if queue == nil then
        return {0, 0, false}
    end
    app.apply_due(tx, queue)
    if last == nil then
        last = box.space.accoda_numbers:get('last_id')
        last = last == nil and 0 or last[2]
    end
    local found = box.space.accoda_jobs.index.age:select({queue[1], state}, {limit = limit})
    for i, job in ipairs(found) do
        if job[f.ID] > last then
            return {i - 1, last, false}
        end
        app.forget(tx, job)
    end
    return {#found, last, #found == limit}
end)
