-- Makes dead jobs ready again. One whose key is held by another job stays dead.
--
-- arguments: now, receipt, ids
-- answer: how many were revived
local app = ...
local f = app.field

local function revive(tx, job)
    local no, keys = job[f.QUEUE], box.space.accoda_keys
    if job[f.KEY] ~= nil then
        if app.holder(no, job[f.KEY]) ~= nil then
            return 0
        end
        keys:insert({no, job[f.KEY], job[f.ID]})
    end
    app.forget_end(job)
    box.space.accoda_jobs:update(job[f.ID], {
        {'=', f.STATE, app.READY}, {'=', f.SORT, job[f.RANK]}, {'+', f.ATTEMPTS, 1},
        {'=', f.PREV_START_TIME, job[f.START_TIME]}, {'=', f.START_TIME, tx.now}, {'=', f.ENDED_AT, box.NULL},
        {'=', f.FRESH_AT, job[f.ATTEMPTS] + 1}, {'=', f.CRASHES, 0},
    })
    app.count(tx, no, app.COUNTS + app.DEAD, -1)
    app.count(tx, no, app.COUNTS + app.READY, 1)
    tx.touched[box.space.accoda_queues:get(no).name] = true
    return 1
end

app.verbs.revive = app.once(function(tx, ids)
    local revived = 0
    for _, id in ipairs(ids) do
        local job = app.job_now(tx, id)
        if job ~= nil and job[f.STATE] == app.DEAD then
            revived = revived + revive(tx, job)
        end
    end
    return revived
end)
