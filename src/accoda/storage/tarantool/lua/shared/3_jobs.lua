-- The steps that several verbs share. All run inside a transaction and never yield.
local app = ...
local f = app.field
local ID, QUEUE, STATE, RANK, KEY, SORT, LANE = f.ID, f.QUEUE, f.STATE, f.RANK, f.KEY, f.SORT, f.LANE
local HELD, READY, DELAYED, TAKEN = app.HELD, app.READY, app.DELAYED, app.TAKEN
local DONE, CANCELLED = app.DONE, app.CANCELLED

function app.find_queue(name)
    return box.space.accoda_queues.index.name:get(name)
end

function app.make_queue(name)
    local queues = box.space.accoda_queues
    local queue = queues.index.name:get(name)
    if queue == nil then
        local last = queues.index.primary:max()
        local no = last == nil and 1 or last[1] + 1
        queue = queues:insert({no, name, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, box.NULL, box.NULL, box.NULL})
    end
    return queue
end

-- Numbers of queues by the position of their name in `names`; 0 where there is no such queue. And the queues.
function app.numbers_of(names)
    local numbers, queues = {}, {}
    for i, name in ipairs(names) do
        local queue = app.find_queue(name)
        numbers[i], queues[i] = queue == nil and 0 or queue[1], queue
    end
    return numbers, queues
end

-- When a pause ends: a moment, math.huge for "not by itself", or nil where the queue is not paused (any more).
function app.paused_until(queue, now)
    if not queue.paused then
        return nil
    elseif queue.paused_until == nil then
        return math.huge
    end
    local moment = tonumber(queue.paused_until)
    return moment > now and moment or nil
end

-- A number of a tuple for Lua to compute with. The format of the space also lets NaN and decimals in, which no Accoda
-- writes: 0 instead of them keeps the index in order and the verb from failing.
function app.plain(value)
    value = tonumber(value)
    return value ~= nil and value == value and value or 0
end
local plain = app.plain

-- How many more jobs of the queue may run at once. Those that run are counted in the index, because a count of the queue
-- that was wrong would stop it for ever. Only queues with a `total` pay for that, and at most about `total` jobs run.
function app.room(queue)
    if queue.total == nil then
        return math.huge
    end
    return math.max(0, tonumber(queue.total) - box.space.accoda_jobs.index.line:count({queue.no, TAKEN}))
end

-- The state and sort of a job that waits from `start` on. One of a lane is held until its lane is balanced.
function app.waiting(lane, start, rank, now)
    if start > now then
        return DELAYED, start
    end
    return lane == nil and READY or HELD, plain(rank)
end

-- Takes a job from one state to another, by these changes of its tuple.
function app.move(tx, job, ops)
    local moved = box.space.accoda_jobs:update(job[ID], ops)
    app.count_state(tx, job[QUEUE], job[STATE], -1)
    app.count_state(tx, job[QUEUE], moved[STATE], 1)
    if moved[LANE] ~= nil then
        app.place(tx, moved)
    end
    return moved
end

-- The job that holds a key, as it is now; nil: the key is free.
function app.holder(tx, no, key)
    local row = box.space.accoda_keys:get({no, key})
    local job = row ~= nil and app.current(tx, row[3]) or nil
    return job ~= nil and job[STATE] <= TAKEN and job or nil
end

function app.free_key(job)
    if job[KEY] ~= nil then
        box.space.accoda_keys:delete({job[QUEUE], job[KEY]})
    end
end

-- How long a finished job is kept, in ms.
local MOST = 2 ^ 53
function app.kept_for(job)
    local ms = math.floor(plain(job[f.KEEP_FOR]) * 1000 + 0.5)
    return ms > 0 and ms < MOST and ms or 0
end

local function kept_row(job)
    return {job[QUEUE], plain(job[f.ENDED_AT]) + app.kept_for(job), job[ID]}
end

-- A finished job stays, for its `keep_for`.
function app.keep(tx, job, state, result)
    app.free_key(job)
    box.space.accoda_kept:replace(kept_row(app.move(tx, job, {
        {'=', STATE, state}, {'=', SORT, tx.now}, {'=', f.ENDED_AT, tx.now}, {'=', f.RESULT, result},
    })))
end

-- Deletes a job for good, and lets go of its key and waiters.
function app.forget(tx, job)
    local id, state = job[ID], job[STATE]
    box.space.accoda_jobs:delete(id)
    if state <= TAKEN then
        app.free_key(job)
    elseif state == DONE or state == CANCELLED then
        box.space.accoda_kept:delete(kept_row(job))
    end
    if job[f.WAITERS] > 0 then
        for _, waiter in ipairs(box.space.accoda_waiters:select({id})) do
            box.space.accoda_waiters:delete({id, waiter[2]})
        end
    end
    if job[LANE] ~= nil then
        app.displace(tx, id)
    end
    app.count_state(tx, job[QUEUE], state, -1)
end

-- Deletes a job that a person wants gone. The end of one that was done or cancelled was reported.
function app.remove(tx, job)
    if job[STATE] <= app.DEAD then
        app.report(tx, job, 'removed')
    end
    app.forget(tx, job)
end

-- What a job that comes back to the queue has in common, whatever brings it back: a new token, since `attempts` grows.
function app.back_to_queue(job, start, rank, now)
    local state, sort = app.waiting(job[LANE], start, rank, now)
    return {
        {'=', STATE, state}, {'=', SORT, sort}, {'=', f.ATTEMPTS, job[f.ATTEMPTS] + 1},
        {'=', f.PREV_START_TIME, job[f.START_TIME]}, {'=', f.START_TIME, start},
    }
end

-- Gives a job that waits or runs another rank. In the line it leaves its place and comes in again; a job that is delayed
-- or taken is ordered by a moment until it is ready.
function app.rerank(tx, job, rank)
    local ops = {{'=', RANK, rank}}
    if job[STATE] == READY or job[STATE] == HELD then
        local state, sort = app.waiting(job[LANE], tx.now, rank, tx.now)
        ops[2], ops[3] = {'=', STATE, state}, {'=', SORT, sort}
    end
    app.move(tx, job, ops)
end

-- What happens to a job whose moment has come.
local moves = {
    [DELAYED] = function(tx, job)
        local state, sort = app.waiting(job[LANE], tx.now, job[RANK], tx.now)
        app.move(tx, job, {{'=', STATE, state}, {'=', SORT, sort}})
        app.count(tx, job[QUEUE], app.count_of.PROMOTED, 1)
    end,
    [TAKEN] = function(tx, job)
        local ops = app.back_to_queue(job, tx.now, job[RANK], tx.now)
        ops[#ops + 1] = {'=', f.CRASHES, job[f.CRASHES] + 1}
        app.move(tx, job, ops)
        app.count(tx, job[QUEUE], app.count_of.EXPIRED, 1)
    end,
    [DONE] = app.forget,
    [CANCELLED] = app.forget,
}

local function due_at(job)
    local state = job[STATE]
    if state == DELAYED or state == TAKEN then
        return plain(job[SORT])
    end
    return (state == DONE or state == CANCELLED) and kept_row(job)[2] or math.huge
end

-- The moment at which the first job of a state is due.
function app.first_due(no, state)
    local first = box.space.accoda_jobs.index.line:min({no, state})
    return first == nil and math.huge or plain(first[SORT])
end

-- The job that a call names, with its own move applied however much else is due; nil: there is none.
function app.current(tx, id)
    local job = box.space.accoda_jobs:get(id)
    if job ~= nil and due_at(job) <= tx.now then
        moves[job[STATE]](tx, job)
        return box.space.accoda_jobs:get(id)
    end
    return job
end

-- The same job, or what has become of it, when its lane is balanced.
function app.balanced(tx, job)
    if job == nil or tx.lanes == nil then
        return job
    end
    app.balance(tx)
    return box.space.accoda_jobs:get(job[ID])
end

-- Moves jobs of a state whose moment is not after `till`, as many as this call may still move.
local function move_due(tx, no, state, till)
    local found = {}
    for _, job in box.space.accoda_jobs.index.line:pairs({no, state}) do
        if #found >= tx.may_move or plain(job[SORT]) > till then
            break
        end
        found[#found + 1] = job
    end
    for _, job in ipairs(found) do
        moves[state](tx, job)
    end
    tx.may_move = tx.may_move - #found
end

local function forget_kept(tx, no)
    local kept, jobs = box.space.accoda_kept, box.space.accoda_jobs
    for _, row in ipairs(kept:select({no}, {limit = tx.may_move})) do
        if row[2] > tx.now then
            break
        end
        local job = jobs:get(row[3])
        if job ~= nil and (job[STATE] == DONE or job[STATE] == CANCELLED) then
            app.forget(tx, job)
        end
        kept:delete({no, row[2], row[3]})
        tx.may_move = tx.may_move - 1
    end
end

-- Starts what is delayed no longer, takes back what was leased until now, forgets what was kept until now. One call moves
-- at most DUE_AT_ONCE jobs, those first whose moment came first, so that no call is long; the next ones go on. Until then
-- such a job is as it was, and that does no harm: `held` looks at the end of the lease itself.
function app.apply_due_of(tx, no)
    local now = tx.now
    while tx.may_move > 0 do
        -- The state whose first moment came first, up to the first moment of the other, and so on.
        local start, ended = app.first_due(no, DELAYED), app.first_due(no, TAKEN)
        if start > now and ended > now then
            break
        elseif start <= ended then
            move_due(tx, no, DELAYED, math.min(ended, now))
        else
            move_due(tx, no, TAKEN, math.min(start, now))
        end
    end
    if tx.lanes ~= nil then
        app.balance(tx) -- so that the verb finds each job where it stands
    end
    forget_kept(tx, no) -- last: no job waits for them to go
end

-- The same in all queues that share limits with this one: what ends there may make room here.
function app.apply_due(tx, queue)
    for _, no in ipairs(queue.shared ~= nil and app.group_of(queue.no) or {queue.no}) do
        app.apply_due_of(tx, no)
    end
end

-- The first moment at which something is due in a queue that shares limits with this one.
function app.first_due_in_group(queue)
    local moment = math.huge
    for _, no in ipairs(queue.shared ~= nil and app.group_of(queue.no) or {}) do
        moment = math.min(moment, app.first_due(no, DELAYED), app.first_due(no, TAKEN))
    end
    return moment
end

-- The taken job that a lease still holds. A lease whose end has come is over, applied or not. A lease from before the
-- store was put back from a snapshot may have the id and attempts of a job of today, but not the moment of its take.
function app.held(tx, no, id, attempts, taken_at)
    local job = box.space.accoda_jobs:get(id)
    if job == nil or job[STATE] ~= TAKEN or job[f.ATTEMPTS] ~= attempts or job[f.TAKEN_AT] ~= taken_at then
        return nil
    end
    if job[SORT] <= tx.now or job[QUEUE] ~= no then
        return nil
    end
    return job
end

-- Why a lease that holds no job is refused: 2 where its job was cancelled, which keeps the token of its last lease while
-- it is kept; else 0, lost.
function app.why_lost(tx, no, id, attempts, taken_at)
    local job = box.space.accoda_jobs:get(id)
    local is_its = job ~= nil and job[STATE] == CANCELLED and job[QUEUE] == no and job[f.ATTEMPTS] == attempts
        and job[f.TAKEN_AT] == taken_at and due_at(job) > tx.now
    return is_its and 2 or 0
end

-- Whether a job has more waiters than were seen. Those that are there count: the number in the job may be wrong.
function app.grown(job, seen)
    return job[f.WAITERS] > seen and box.space.accoda_waiters:count({job[ID]}) > seen
end
