-- Deletes a job that waits or runs, unless more wait for it than were seen.
--
-- arguments: now, receipt, name of the queue, id, waiters that were seen
-- answer: whether it was deleted
local app = ...
local f = app.field

app.verbs.drop = app.once(function(tx, name, id, waiters)
    local queue = app.find_queue(name)
    local job = queue ~= nil and app.job_now(tx, id) or nil
    if job == nil or job[f.QUEUE] ~= queue[1] or job[f.STATE] > app.TAKEN or app.grown(job, waiters) then
        return false
    end
    app.forget(tx, app.up_to_date(tx, job))
    return true
end)
