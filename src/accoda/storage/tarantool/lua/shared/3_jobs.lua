-- The steps that several verbs share. All run inside a transaction and never yield.
local app = ...
local f = app.field
local ID, QUEUE, STATE, RANK, KEY, ATTEMPTS = f.ID, f.QUEUE, f.STATE, f.RANK, f.KEY, f.ATTEMPTS
local START_TIME, PREV_START_TIME, WAITERS, SORT = f.START_TIME, f.PREV_START_TIME, f.WAITERS, f.SORT
local FRESH_AT, CRASHES, ENDED_AT = f.FRESH_AT, f.CRASHES, f.ENDED_AT
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

-- The order in which jobs ended, for `purge`. A row that fits no job (any more) does no harm.
local function ended_row(job)
    local at = job[ENDED_AT]
    return {job[QUEUE], job[STATE], at == nil and 0 or at, job[ID]}
end

function app.note_end(job)
    box.space.accoda_ended:replace(ended_row(job))
end

function app.forget_end(job)
    box.space.accoda_ended:delete(ended_row(job))
end

-- Deletes a job for good, and lets go of its key and waiters.
function app.forget(tx, job)
    local id, state = job[ID], job[STATE]
    box.space.accoda_jobs:delete(id)
    if state >= DEAD then
        app.forget_end(job)
    elseif job[KEY] ~= nil then
        app.free_key(job)
    end
    if job[WAITERS] > 0 then
        for _, waiter in ipairs(box.space.accoda_waiters:select({id})) do
            box.space.accoda_waiters:delete({id, waiter[2]})
        end
    end
    if state <= DONE then
        count(tx, job[QUEUE], COUNTS + state, -1)
    end
end

function app.free_key(job)
    local keys = box.space.accoda_keys
    local row = keys:get({job[QUEUE], job[KEY]})
    if row ~= nil and row[3] == job[ID] then
        keys:delete({job[QUEUE], job[KEY]})
    end
end

-- A number of the space as one of Lua's: the space also takes 64-bit integers and decimals, which compare badly.
function app.number(value)
    return type(value) == 'number' and value or tonumber(value) or tonumber(tostring(value)) or 0
end
local number = app.number

local function moment_of(first)
    return first ~= nil and number(first[SORT]) or math.huge
end

-- What happens to a job whose moment has come.
local moves = {
    [DELAYED] = function(tx, no, job)
        box.space.accoda_jobs:update(job[ID], {{'=', STATE, READY}, {'=', SORT, job[RANK]}})
        count(tx, no, COUNTS + DELAYED, -1)
        count(tx, no, COUNTS + READY, 1)
    end,
    [TAKEN] = function(tx, no, job)
        box.space.accoda_jobs:update(job[ID], {
            {'=', STATE, READY}, {'=', SORT, job[RANK]}, {'+', ATTEMPTS, 1},
            {'=', PREV_START_TIME, job[START_TIME]}, {'=', START_TIME, tx.now},
            {'=', FRESH_AT, job[FRESH_AT] or 0}, {'=', CRASHES, (job[CRASHES] or 0) + 1},
        })
        count(tx, no, COUNTS + TAKEN, -1)
        count(tx, no, COUNTS + READY, 1)
        count(tx, no, EXPIRED, 1)
    end,
    [DONE] = function(tx, _, job)
        app.forget(tx, job)
    end,
}

-- Moves jobs of a state whose moment is not after `till`, as many as this call may still move.
local function move(tx, no, state, till)
    local found = {}
    for _, job in box.space.accoda_jobs.index.line:pairs({no, state}) do
        if #found >= tx.may_move or number(job[SORT]) > till then
            break
        end
        found[#found + 1] = job
    end
    for _, job in ipairs(found) do
        local problem = state ~= DONE and app.unreadable(job)
        if problem then
            app.set_aside(tx, job, problem)
        else
            moves[state](tx, no, job)
        end
    end
    tx.may_move = tx.may_move - #found
end

-- A job that can be read as it is at this moment: where more is due than one call may move, its own start or the end of
-- its lease may not be applied yet.
function app.up_to_date(tx, job)
    local state = job[STATE]
    if (state == DELAYED or state == TAKEN) and number(job[SORT]) <= tx.now then
        moves[state](tx, job[QUEUE], job)
        return box.space.accoda_jobs:get(job[ID])
    end
    return job
end

-- Results that were kept until now go.
function app.forget_kept(tx, no)
    if tx.may_move > 0 and moment_of(box.space.accoda_jobs.index.line:min({no, DONE})) <= tx.now then
        move(tx, no, DONE, tx.now)
        return true
    end
end

-- Starts what is delayed no longer, takes back what was leased until now, forgets what was kept until now. One call moves
-- at most DUE_AT_ONCE jobs, those first whose moment came first, so that no call is long; the next ones go on. Until then
-- such a job is as it was, but nobody is deceived: `held` looks at the end of the lease itself. Once for each queue and
-- transaction is enough: its present moment stands still. `hastily`: believe the counts of the queue's row about which
-- states are empty.
function app.apply_due(tx, queue, hastily)
    local no, now, line = queue[1], tx.now, box.space.accoda_jobs.index.line
    if tx.applied[no] then
        return
    end
    local delayed, taken = not hastily or queue[COUNTS + DELAYED] > 0, not hastily or queue[COUNTS + TAKEN] > 0
    tx.applied[no] = not hastily
    while tx.may_move > 0 and (delayed or taken) do
        -- The kind whose first moment came first is applied up to the first moment of the other, and so on.
        local start = delayed and moment_of(line:min({no, DELAYED})) or math.huge
        local ended = taken and moment_of(line:min({no, TAKEN})) or math.huge
        if start > now and ended > now then
            break
        elseif start <= ended then
            move(tx, no, DELAYED, math.min(ended, now))
        else
            move(tx, no, TAKEN, math.min(start, now))
        end
    end
    if not hastily or queue[COUNTS + DONE] > 0 then
        app.forget_kept(tx, no) -- last: nobody waits for them to go
    end
end

-- Moments beyond all that can be told are damage: a lease and a keeping end now, a job without a start is set aside.
local NEVER = 2e16 -- ms; a moment is at most 2^53, and so is the length of a lease
function app.end_the_endless(tx, no)
    local jobs = box.space.accoda_jobs
    for _, state in ipairs({DELAYED, TAKEN, DONE}) do
        for _ = 1, 100 do
            local last = jobs.index.line:max({no, state})
            if last == nil or number(last[SORT]) < NEVER then
                break
            elseif state == DELAYED then
                app.set_aside(tx, last, app.unreadable(last) or 'start_time is no moment')
            else
                jobs:update(last[ID], {{'=', SORT, tx.now}})
            end
        end
    end
end

-- Applies what is due in the queue of a job, then gives the job; nil where it is not, or no more. One that cannot be read
-- is dead then.
function app.job_now(tx, id)
    local jobs = box.space.accoda_jobs
    local job = jobs:get(id)
    local queue = job ~= nil and box.space.accoda_queues:get(job[QUEUE]) or nil
    if queue == nil then
        return nil
    end
    app.apply_due(tx, queue)
    job = jobs:get(id)
    local problem = job ~= nil and app.unreadable(job)
    if problem then
        app.set_aside(tx, job, problem)
        job = jobs:get(id)
    end
    return job
end

-- The taken job that a lease still holds. A lease whose end has come is over, applied or not.
function app.held(tx, queue, id, attempts)
    local job = box.space.accoda_jobs:get(id)
    if job == nil or job[STATE] ~= TAKEN or job[ATTEMPTS] ~= attempts or job[SORT] <= tx.now or job[QUEUE] ~= queue then
        return nil
    end
    return job
end

-- Whether more wait for a job than were seen. Those that are there count: the number in the job may be damaged.
function app.grown(job, seen)
    return job[WAITERS] > seen and box.space.accoda_waiters:count({job[ID]}) > seen
end

-- The waiters of a job but for the first ones. They are numbered as they joined, so nobody looks at those that are passed
-- over; and tuples go to the client as they are, without a text in Lua for each.
function app.waiters_after(id, after)
    local waiters = box.space.accoda_waiters
    if after == 0 then
        return waiters:select({id})
    end
    local last = waiters.index.primary:max({id})
    if last == nil or last[2] <= after then
        return {}
    end
    return waiters:select({id, after}, {iterator = 'GT', limit = tonumber(last[2]) - tonumber(after)})
end

-- The first ready job of the next rank in a direction.
function app.after_rank(no, sort, direction)
    local job = box.space.accoda_jobs.index.line:select({no, READY, sort}, {iterator = direction, limit = 1})[1]
    return job ~= nil and job[QUEUE] == no and job[STATE] == READY and job or nil
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
