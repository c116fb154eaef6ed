-- Makes delayed jobs ready now, whatever they wait for.
--
-- arguments: now, receipt, ids
-- answer: how many were started
local app = ...
local f = app.field

app.verbs.start_now = app.once(function(tx, ids)
    local started = 0
    for _, id in ipairs(ids) do
        local job = app.job_now(tx, id)
        if job ~= nil and app.up_to_date(tx, job)[f.STATE] == app.DELAYED then
            local no = job[f.QUEUE]
            box.space.accoda_jobs:update(id, {
                {'=', f.STATE, app.READY}, {'=', f.SORT, job[f.RANK]}, {'=', f.START_TIME, tx.now},
            })
            app.count(tx, no, app.COUNTS + app.DELAYED, -1)
            app.count(tx, no, app.COUNTS + app.READY, 1)
            tx.touched[box.space.accoda_queues:get(no).name] = true
            started = started + 1
        end
    end
    return started
end)
