-- Looks at one job without taking it: the one that holds a key, or the one that the next take would give first.
--
-- arguments: now, name of the queue, key or nil, after: how many waiters to pass over, or nil to tell none of them
-- answer: {the present moment}, and where there is such a job {…, its tuple, the tuples of its waiters}; the last of these
--         may be of other jobs, where numbers are missing
local app = ...
local f = app.field

-- The first ready job. Those that cannot be read are set aside, as many as may be moved in one call.
local function first_ready(tx, no)
    local line = box.space.accoda_jobs.index.line
    while true do
        local job = line:min({no, app.READY})
        if job == nil then
            return nil
        end
        local sort = app.number(job[f.SORT])
        local problem = app.unreadable(job) or (sort - sort ~= 0 and 'rank is not finite')
        if not problem then
            return job
        elseif tx.may_move <= 0 then
            return nil
        end
        app.set_aside(tx, job, problem)
        tx.may_move = tx.may_move - 1
    end
end

local function holder(tx, no, key)
    local job = app.holder(no, key)
    local problem = job ~= nil and app.unreadable(job)
    if problem then
        app.set_aside(tx, job, problem)
        return nil
    end
    return job ~= nil and app.up_to_date(tx, job) or nil
end

app.verbs.peek = app.atomic(function(tx, name, key, after)
    local queue, job = app.find_queue(name), nil
    if queue ~= nil then
        app.apply_due(tx, queue)
        if key ~= nil then
            job = holder(tx, queue[1], key)
        elseif app.paused_until(queue, tx.now) == nil then
            job = first_ready(tx, queue[1])
        end
    end
    if job == nil then
        return {tx.now}
    end
    return {tx.now, job, after == nil and {} or app.waiters_after(job[f.ID], after)}
end)
