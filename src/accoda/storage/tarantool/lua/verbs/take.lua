-- Leases up to `count` ready jobs, lowest rank first (in a fair line: lowest turn), then lowest id. Never waits.
-- To be taken frees no place in a lane and takes none, so no lane is balanced for it.
--
-- arguments: now, receipt, name of the queue, count, lease in ms, max_cost or nil, worker
-- answer: the jobs' tuples
local app = ...
local f = app.field
local ID, COST, LANE = f.ID, f.COST, f.LANE
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

local function take(tx, name, count, lease, max_cost, worker)
    local queue = app.find_queue(name)
    if queue == nil then
        return {}
    end
    local no, jobs = queue[1], box.space.accoda_jobs
    app.apply_due(tx, queue)
    if app.paused_until(queue, tx.now) ~= nil then
        return {}
    end
    local found = jobs.index.line:select({no, READY}, {limit = math.min(count, app.room(queue))})
    local size = max_cost == nil and #found or affordable(found, tonumber(max_cost))
    -- No other taker can have them: see app.atomic.
    local ops = {
        {'=', f.STATE, TAKEN}, {'=', f.WORKER, worker}, {'=', f.TAKEN_AT, tx.now},
        {'=', f.SORT, tx.now + tonumber(lease)},
    }
    local taken = {}
    for i = 1, size do
        local job = jobs:update(found[i][ID], ops)
        if job[LANE] ~= nil then
            app.put_taken(job)
        end
        taken[i] = job
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
        found[i] = {job[ID], job[f.ATTEMPTS], job[f.TAKEN_AT]}
    end
    return found
end

local function still_held(tx, stored, name)
    local queue, jobs = app.find_queue(name), {}
    for _, token in ipairs(queue == nil and {} or stored) do
        jobs[#jobs + 1] = app.held(tx, queue[1], unpack(token))
    end
    return jobs
end

app.verbs.take = app.once(take, tokens, still_held)
