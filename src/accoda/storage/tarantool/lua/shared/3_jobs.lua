-- The steps that several verbs share. All run inside a transaction and never yield.
local app = ...
local fiber = require('fiber')
local MOST_SECONDS = 60
local f = app.field
local ID, QUEUE, STATE, RANK, KEY, ATTEMPTS = f.ID, f.QUEUE, f.STATE, f.RANK, f.KEY, f.ATTEMPTS
local START_TIME, PREV_START_TIME, WAITERS, SORT = f.START_TIME, f.PREV_START_TIME, f.WAITERS, f.SORT
local FRESH_AT, CRASHES = f.FRESH_AT, f.CRASHES
local READY, DELAYED, TAKEN, DEAD, DONE = app.READY, app.DELAYED, app.TAKEN, app.DEAD, app.DONE
local COUNTS, EXPIRED = app.COUNTS, app.count_of.EXPIRED
local count = app.count

function app.find_queue(name)
    return box.space.accoda_queues.index.name:get(name)
end

function app.make_queue(name)
    local queues = box.space.accoda_queues
    local queue = queues.index.name:get(name)
    if queue == nil then
        local last = queues.index.primary:max()
        local no = last == nil and 1 or last[1] + 1
        queue = queues:insert({no, name, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, box.NULL})
    end
    return queue
end

-- When a pause ends: a moment, math.huge for "not by itself", or nil where there is none (any more).
function app.paused_until(queue, now)
    if not queue.paused then
        return nil
    end
    local moment = queue.paused_until
    if moment == nil then
        return math.huge
    end
    moment = tonumber(moment)
    return moment > now and moment or nil
end

-- Deletes a job for good, and lets go of its key and waiters.
function app.forget(tx, job)
    local id, state = job[ID], job[STATE]
    box.space.accoda_jobs:delete(id)
    if state < DEAD and job[KEY] ~= nil then
        box.space.accoda_keys:delete({job[QUEUE], job[KEY]})
    end
    for n = 1, job[WAITERS] do
        box.space.accoda_waiters:delete({id, n})
    end
    count(tx, job[QUEUE], COUNTS + state, -1)
end

-- The jobs of a state whose moment has come. There may be many; newer servers stop a fiber that works for a second
-- without a yield, unless it asks for more.
local function due(queue, state, now)
    local found = {}
    if fiber.set_slice ~= nil then
        pcall(fiber.set_slice, MOST_SECONDS)
    end
    for _, job in box.space.accoda_jobs.index.line:pairs({queue, state}) do
        if job[SORT] > now then
            break
        end
        found[#found + 1] = job
    end
    return found
end

-- Starts what is delayed no longer, takes back what was leased until now, forgets what was kept until now. Once for
-- each queue and transaction is enough: its present moment stands still. The counts of the queue's row tell which states
-- are empty; jobs that this very transaction moved are not in them, but none of those is due yet.
function app.apply_due(tx, queue)
    local no, now = queue[1], tx.now
    if tx.applied[no] then
        return
    end
    tx.applied[no] = true
    local jobs = box.space.accoda_jobs
    if queue[COUNTS + DELAYED] > 0 then
        for _, job in ipairs(due(no, DELAYED, now)) do
            jobs:update(job[ID], {{'=', STATE, READY}, {'=', SORT, job[RANK]}})
            count(tx, no, COUNTS + DELAYED, -1)
            count(tx, no, COUNTS + READY, 1)
        end
    end
    if queue[COUNTS + TAKEN] > 0 then
        for _, job in ipairs(due(no, TAKEN, now)) do
            jobs:update(job[ID], {
                {'=', STATE, READY}, {'=', SORT, job[RANK]}, {'+', ATTEMPTS, 1},
                {'=', PREV_START_TIME, job[START_TIME]}, {'=', START_TIME, now},
                {'=', FRESH_AT, job[FRESH_AT] or 0}, {'=', CRASHES, (job[CRASHES] or 0) + 1},
            })
            count(tx, no, COUNTS + TAKEN, -1)
            count(tx, no, COUNTS + READY, 1)
            count(tx, no, EXPIRED, 1)
        end
    end
    if queue[COUNTS + DONE] > 0 then
        for _, job in ipairs(due(no, DONE, now)) do
            app.forget(tx, job)
        end
    end
end

-- Applies what is due in the queue of a job, then gives the job; nil where it is not, or no more.
function app.job_now(tx, id)
    local job = box.space.accoda_jobs:get(id)
    if job == nil then
        return nil
    end
    app.apply_due(tx, box.space.accoda_queues:get(job[QUEUE]))
    return box.space.accoda_jobs:get(id)
end

-- The taken job that a lease still holds. A lease whose end has come is over, applied or not.
function app.held(tx, queue, id, attempts)
    local job = box.space.accoda_jobs:get(id)
    if job == nil or job[STATE] ~= TAKEN or job[ATTEMPTS] ~= attempts or job[SORT] <= tx.now or job[QUEUE] ~= queue then
        return nil
    end
    return job
end

-- The state and sort of a job that waits from `start` on.
function app.waiting(start, rank, now)
    if start <= now then
        return READY, rank
    end
    return DELAYED, start
end

-- Numbers of queues by the position of their name in `names`; 0 where there is no such queue.
function app.numbers_of(names)
    local numbers = {}
    for i, name in ipairs(names) do
        local queue = app.find_queue(name)
        numbers[i] = queue == nil and 0 or queue[1]
    end
    return numbers
end
