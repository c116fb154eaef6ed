-- Leases up to `count` ready jobs, lowest rank first, then lowest id. Never waits.
--
-- arguments: now, receipt, name of the queue, count, lease in ms, max_cost or nil, worker
-- answer: the jobs' tuples
local app = ...
local f = app.field
local ID, COST, SORT = f.ID, f.COST, f.SORT
local READY, TAKEN, COUNTS = app.READY, app.TAKEN, app.COUNTS

-- How many of these jobs, from the head, cost at most `max_cost` together.
local function affordable(jobs, max_cost)
    for i, job in ipairs(jobs) do
        max_cost = max_cost - tonumber(job[COST])
        if max_cost < 0 then
            return i - 1
        end
    end
    return #jobs
end

local function is_finite(job)
    local sort = app.number(job[SORT])
    return sort - sort == 0
end

-- The first ready jobs. They come in the order of their ranks, so one whose rank is no finite number shows at either end;
-- then each is looked at, and those that cannot be read are set aside.
local function first_ready(tx, no, count)
    local line = box.space.accoda_jobs.index.line
    while true do
        local found = line:select({no, READY}, {limit = count})
        if #found == 0 or (is_finite(found[1]) and is_finite(found[#found])) then
            return found
        end
        local good, bad = {}, {}
        for _, job in ipairs(found) do
            local list = is_finite(job) and good or bad
            list[#list + 1] = job
        end
        for i = 1, math.min(#bad, tx.may_move) do
            app.set_aside(tx, bad[i], app.unreadable(bad[i]) or 'rank is not finite')
        end
        tx.may_move = tx.may_move - #bad
        if #good > 0 or tx.may_move <= 0 then
            return good
        end
    end
end

local function take(tx, name, count, lease, max_cost, worker)
    local queue = app.find_queue(name)
    if queue == nil then
        return {}
    end
    app.apply_due(tx, queue, true)
    if app.paused_until(queue, tx.now) ~= nil then
        return {}
    end
    local no, jobs = queue[1], box.space.accoda_jobs
    local found = first_ready(tx, no, count)
    if #found == 0 and count > 0 then
        app.apply_due(tx, queue) -- nothing to do but to look whether the counts are right
        found = first_ready(tx, no, count)
        if #found == 0 and queue[COUNTS + READY] > 0 then
            app.flush(tx)
            app.recount(no) -- by the counts there are some
        end
    end
    local size = max_cost == nil and #found or affordable(found, tonumber(max_cost))
    -- No other taker can have them: see app.atomic.
    local ops = {
        {'=', f.STATE, TAKEN}, {'=', f.WORKER, worker}, {'=', f.TAKEN_AT, tx.now},
        {'=', f.SORT, tx.now + tonumber(lease)},
    }
    local taken = {}
    for i = 1, size do
        taken[i] = jobs:update(found[i][ID], ops)
    end
    if size > 0 then
        app.count(tx, no, COUNTS + READY, -size)
        app.count(tx, no, COUNTS + TAKEN, size)
    end
    return taken
end

-- Sent again, it gives those of the jobs that are still leased by the first call.
local function tokens(jobs)
    if #jobs == 0 then
        return nil
    end
    local found = {}
    for i, job in ipairs(jobs) do
        found[i] = {job[ID], job[f.ATTEMPTS]}
    end
    return found
end

local function still_held(tx, stored, name)
    local queue, jobs = app.find_queue(name), {}
    for _, token in ipairs(queue == nil and {} or stored) do
        jobs[#jobs + 1] = app.held(tx, queue[1], token[1], token[2])
    end
    return jobs
end

app.verbs.take = app.once(take, tokens, still_held)
