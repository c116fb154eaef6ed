-- Looks at one job without taking it: by its id, by the key that it holds, or the one that the next take would give.
--
-- arguments: now, id or nil, name of the queue or nil, key or nil, waiters_after: how many waiters to pass over, or nil
--            to tell none of them; ahead: whether to count the jobs before it
-- answer: {the present moment}, and where there is such a job {…, its tuple, its queue, the tuples of its waiters, how
--         many ready jobs are before it, how many of these have a higher id}; the last two are nil for a job that is
--         neither ready nor delayed. Of the waiters some at the end may be of other jobs, where numbers are missing.
local app = ...
local f = app.field
local READY, DELAYED = app.READY, app.DELAYED
local AHEAD_AT_MOST = 10000 -- as in accoda/model.py

local function find(tx, id, name, key)
    if id ~= nil then
        local job = box.space.accoda_jobs:get(id)
        local queue = job ~= nil and box.space.accoda_queues:get(job[f.QUEUE]) or nil
        if queue ~= nil then
            app.apply_due(tx, queue)
        end
        return app.balanced(tx, app.current(tx, id))
    end
    local queue = app.find_queue(name)
    if queue == nil then
        return nil
    end
    app.apply_due(tx, queue)
    if key ~= nil then
        return app.balanced(tx, app.holder(tx, queue[1], key))
    end
    local gives = app.paused_until(queue, tx.now) == nil and app.room(queue) > 0
    return gives and box.space.accoda_jobs.index.line:min({queue[1], READY}) or nil
end

-- They are numbered in the order in which they joined, so those that are passed over are not read; and tuples go to the
-- client as they are, without a text in Lua for each.
local function waiters_of(job, after)
    local left = tonumber(job[f.WAITERS]) - after
    if left <= 0 then
        return {}
    end
    return box.space.accoda_waiters:select({job[f.ID], after}, {iterator = 'GT', limit = math.min(left, 2 ^ 31)})
end

local function count_ahead(job)
    local id, state, ahead, newer = job[f.ID], job[f.STATE], 0, 0
    if state ~= READY and state ~= DELAYED then
        return nil, nil
    end
    local sort = app.plain(state == READY and job[f.SORT] or job[f.RANK])
    for _, other in box.space.accoda_jobs.index.line:pairs({job[f.QUEUE], READY}) do
        local place = app.plain(other[f.SORT])
        if place > sort or (place == sort and other[f.ID] >= id) then
            break
        end
        ahead = ahead + 1
        if ahead > AHEAD_AT_MOST then
            break
        elseif other[f.ID] > id then
            newer = newer + 1
        end
    end
    return ahead, newer
end

app.verbs.look = app.atomic(function(tx, id, name, key, waiters_after, ahead)
    local job = find(tx, id, name, key)
    local queue = job ~= nil and box.space.accoda_queues:get(job[f.QUEUE]) or nil
    if queue == nil then
        return {tx.now}
    end
    local waiters = waiters_after == nil and {} or waiters_of(job, waiters_after)
    if not ahead then
        return {tx.now, job, queue.name, waiters, box.NULL, 0}
    end
    local before, newer = count_ahead(job)
    return {tx.now, job, queue.name, waiters, before or box.NULL, newer or 0}
end)
