-- Stores jobs, all or none, in order. New jobs get ids in a row.
--
-- arguments: now, receipt, names {queue, …}, jobs {job, …}
--            a job is {queue, data, rank, cost, delay, start_at, keep_for, key, mode, waiter, reports_to, lane};
--            queue: the position of its name; delay in ms; mode: 0 keep, 1 replace, 2 attach, 3 rerank; fields at the
--            end may be missing
-- answer: {first id, joined}; joined {{position, id, mode, waiters}, …} tells of the jobs whose key was held,
--         all others were created with the next id
local app = ...
local f = app.field
local HELD, READY, TAKEN, COUNTS = app.HELD, app.READY, app.TAKEN, app.COUNTS
local KEEP, REPLACE, ATTACH, RERANK = 0, 1, 2, 3
local NULL = box.NULL

local function start_of(now, delay, start_at)
    if delay ~= nil then
        return now + tonumber(delay)
    end
    return start_at == nil and now or math.max(now, tonumber(start_at))
end

local function replace(tx, new, held, start)
    local rank, ops = new[3], nil
    if held[f.STATE] == TAKEN then
        -- The run of the old data is over: its token no longer fits, so its outcome cannot settle the new data.
        ops = app.back_to_queue(held, start, rank, tx.now)
    else
        local state, sort = app.waiting(held[f.LANE], start, rank, tx.now)
        ops = {{'=', f.STATE, state}, {'=', f.SORT, sort}, {'=', f.START_TIME, start}}
    end
    for field, value in pairs({
        [f.DATA] = new[2], [f.RANK] = rank, [f.COST] = new[4] or 0, [f.KEEP_FOR] = new[7] or 0, [f.TRIES] = 0,
        [f.CRASHES] = 0,
    }) do
        ops[#ops + 1] = {'=', field, value}
    end
    app.move(tx, held, ops)
end

-- The key is held: what becomes of the new job.
local function join(tx, new, held, start)
    local id, waiters, mode = held[f.ID], held[f.WAITERS], new[9] or KEEP
    if (mode == REPLACE or mode == ATTACH) and new[10] ~= nil then
        waiters = waiters + 1
        box.space.accoda_waiters:replace({id, waiters, new[10]})
        box.space.accoda_jobs:update(id, {{'=', f.WAITERS, waiters}})
    end
    if mode == REPLACE then
        replace(tx, new, held, start)
    elseif mode == RERANK then
        app.rerank(tx, held, new[3])
    end
    return id, mode, waiters
end

-- Also called by settle, for follow-ups, and for reports.
function app.enqueue(tx, names, news)
    local jobs, keys, numbers = box.space.accoda_jobs, box.space.accoda_keys, box.space.accoda_numbers
    local last = numbers:get('last_id')
    local id = last == nil and 0 or last[2]
    local first, now, joined, queues, fills = id + 1, tx.now, {}, {}, {}
    for position, new in ipairs(news) do
        local place, rank, key, waiter, lane = new[1], new[3], new[8], new[10], new[12]
        local queue = queues[place]
        if queue == nil then
            queue = app.make_queue(names[place])
            queues[place] = queue
            fills[place] = not queue.paused and queue.total == nil
            tx.touched[names[place]] = tx.touched[names[place]] or true
        end
        local no, start = queue[1], start_of(now, new[5], new[6])
        local held = key ~= nil and app.holder(tx, no, key) or nil
        if held ~= nil then
            joined[#joined + 1] = {position, join(tx, new, held, start)}
        else
            id = id + 1
            local state, sort = app.waiting(lane, start, rank, now)
            local job = {
                id, no, state, new[2], rank, new[4] or 0, key, 0, now, start, NULL, waiter == nil and 0 or 1,
                new[7] or 0, NULL, NULL, sort, NULL, NULL, NULL, 0, 0,
                lane or NULL, new[11] or NULL,
            }
            if key ~= nil then
                keys:replace({no, key, id})
                if waiter ~= nil then
                    box.space.accoda_waiters:replace({id, 1, waiter})
                end
            end
            app.count(tx, no, COUNTS + state, 1)
            if state == HELD and key == nil then
                app.come(tx, job)
            else
                jobs:insert(job)
                if lane ~= nil then
                    app.place(tx, job)
                end
            end
            if state == READY and fills[place] then
                tx.touched[names[place]] = app.FILLED
            end
        end
    end
    if id >= first then
        numbers:replace({'last_id', id})
    end
    return {first, joined}
end

app.verbs.enqueue = app.once(function(tx, names, jobs)
    app.need_reserve()
    local answer = app.enqueue(tx, names, jobs)
    if #answer[2] > 0 then
        app.stand_behind() -- "kept" vouches for a job that another call may be writing at this moment
    end
    return answer
end, nil, nil, true)
