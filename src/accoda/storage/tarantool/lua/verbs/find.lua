-- Everything about one job.
--
-- arguments: now, id
-- answer: {job's tuple, queue}, or {}
local app = ...

app.verbs.find = app.atomic(function(tx, id)
    local job = app.job_now(tx, id)
    if job == nil then
        return {}
    end
    return {job, box.space.accoda_queues:get(job[app.field.QUEUE]).name}
end)
