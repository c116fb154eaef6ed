-- Deletes jobs in any state.
--
-- arguments: now, receipt, ids
-- answer: how many were there
local app = ...

app.verbs.remove = app.once(function(tx, ids)
    local removed = 0
    for _, id in ipairs(ids) do
        local job = app.job_now(tx, id) or box.space.accoda_jobs:get(id) -- even one of a queue that is none
        if job ~= nil then
            app.forget(tx, job)
            removed = removed + 1
        end
    end
    return removed
end)
