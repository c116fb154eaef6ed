-- Stores jobs, all or none, in order. New jobs get ids in a row.
--
-- arguments: now, receipt, names {queue, …}, news {job, …}
--            a job is {queue, data, rank, cost, delay, start_at, keep_for, key, mode, waiter}; queue: the position of its
--            name; delay in ms; mode: 0 keep, 1 replace, 2 attach; fields at the end may be missing
-- answer: {first id, joined}; joined {{position, id, mode, waiters}, …} tells of the jobs whose key was held,
--         all others were created with the next id
local app = ...
local f = app.field
local READY, DELAYED, TAKEN, COUNTS = app.READY, app.DELAYED, app.TAKEN, app.COUNTS
local KEEP, REPLACE = 0, 1
local NULL = box.NULL

local function start_of(now, delay, start_at)
    if delay ~= nil then
        return now + tonumber(delay)
    end
    return start_at == nil and now or math.max(now, tonumber(start_at))
end

-- The job that holds a key. A key that is held by none is free.
function app.holder(no, key)
    local row = box.space.accoda_keys:get({no, key})
    if row == nil then
        return nil
    end
    local job = box.space.accoda_jobs:get(row[3])
    if job ~= nil and job[f.STATE] <= TAKEN and job[f.QUEUE] == no and job[f.KEY] == key then
        return job
    end
    box.space.accoda_keys:delete({no, key})
end

-- The key is held: what becomes of the newcomer.
local function join(tx, no, new, held, start)
    local id, waiters, ops = held[f.ID], held[f.WAITERS], {}
    local mode = new[9] or KEEP
    if mode == KEEP then
        return {id, mode, waiters}
    end
    if new[10] ~= nil then
        local last = box.space.accoda_waiters.index.primary:max({id})
        waiters = math.max(waiters, last == nil and 0 or last[2]) + 1
        box.space.accoda_waiters:insert({id, waiters, new[10]})
        ops[1] = {'=', f.WAITERS, waiters}
    end
    if mode == REPLACE then
        local rank, old, attempts = new[3], held[f.STATE], held[f.ATTEMPTS]
        local state, sort = app.waiting(start, rank, tx.now)
        for field, value in pairs({
            [f.STATE] = state, [f.SORT] = sort, [f.DATA] = new[2], [f.RANK] = rank, [f.COST] = new[4] or 0,
            [f.KEEP_FOR] = new[7] or 0, [f.START_TIME] = start,
        }) do
            ops[#ops + 1] = {'=', field, value}
        end
        if old == TAKEN then
            -- The run of the old data is over: its token no longer fits, so its outcome cannot settle the new data.
            attempts = attempts + 1
            ops[#ops + 1] = {'=', f.ATTEMPTS, attempts}
            ops[#ops + 1] = {'=', f.PREV_START_TIME, held[f.START_TIME]}
        end
        if attempts > 0 then
            ops[#ops + 1] = {'=', f.FRESH_AT, attempts}
            ops[#ops + 1] = {'=', f.CRASHES, 0}
        end
        app.count(tx, no, COUNTS + old, -1)
        app.count(tx, no, COUNTS + state, 1)
    end
    if #ops > 0 then
        box.space.accoda_jobs:update(id, ops)
    end
    return {id, mode, waiters}
end

-- Also called by settle, for follow-ups.
function app.enqueue(tx, names, news)
    local jobs, keys, numbers = box.space.accoda_jobs, box.space.accoda_keys, box.space.accoda_numbers
    local last, highest = numbers:get('last_id'), jobs.index.primary:max()
    local id = math.max(last == nil and 0 or tonumber(last[2]), highest == nil and 0 or tonumber(highest[1]))
    local first, now, joined, queues = id + 1, tx.now, {}, {}
    for position, new in ipairs(news) do
        local place, rank, key = new[1], new[3], new[8]
        local queue = queues[place]
        if queue == nil then
            queue = app.make_queue(names[place])
            queues[place] = queue
            tx.touched[names[place]] = true
        end
        local no, held = queue[1], nil
        local start = start_of(now, new[5], new[6])
        if key ~= nil then
            app.apply_due(tx, queue)
            held = app.holder(no, key)
        end
        if held ~= nil then
            local answer = join(tx, no, new, held, start)
            joined[#joined + 1] = {position, answer[1], answer[2], answer[3]}
        else
            id = id + 1
            local state, sort = READY, rank
            if start > now then
                state, sort = DELAYED, start
            end
            local waiter = new[10]
            jobs:insert({
                id, no, state, new[2], rank, new[4] or 0, key, 0, now, start, NULL,
                waiter == nil and 0 or 1, new[7] or 0, NULL, NULL, sort, NULL, NULL, NULL,
            })
            if key ~= nil then
                keys:insert({no, key, id})
                if waiter ~= nil then
                    box.space.accoda_waiters:replace({id, 1, waiter})
                end
            end
            app.count(tx, no, COUNTS + state, 1)
            if state == READY and not queue.paused then
                tx.touched[names[place]] = app.FILLED
            end
        end
    end
    if id >= first then
        numbers:replace({'last_id', id})
    end
    return {first, joined}
end

app.verbs.enqueue = app.once(function(tx, names, news)
    app.need_room()
    local answer = app.enqueue(tx, names, news)
    if #answer[2] > 0 then
        app.stand_behind() -- "kept" vouches for a job that another call may be writing at this moment
    end
    return answer
end, nil, nil, true)
