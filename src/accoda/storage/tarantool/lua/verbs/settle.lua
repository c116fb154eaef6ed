-- Applies each outcome whose lease is current, then enqueues the follow-ups of the accepted ones, then reports the jobs that
-- ended to their flows, in one step.
--
-- arguments: now, receipt, names {queue, …}, outcomes, follow_ups {{position of the outcome, jobs as for enqueue}, …}
--            an outcome is {queue, id, attempts, taken_at}, then for
--            done:  nothing, or 0, waiters that were seen or nil, result or nil
--            retry: 1, delay in ms, moment or nil, reason, rank or nil, whether it counts
--            bury:  2, reason
-- answer: {{position, why}, …} of those that were refused; why: 0 lost, 1 grown, 2 cancelled
local app = ...
local f = app.field
local count_of = app.count_of
local RETRY = 1

local function finish(tx, no, job, result)
    app.count(tx, no, count_of.DONE, 1)
    app.report_done(tx, job, result)
    if app.kept_for(job) == 0 then
        app.forget(tx, job)
        return
    end
    if result == nil then
        result = box.NULL
    end
    app.keep(tx, job, app.DONE, result)
end

local function retry(tx, no, name, job, outcome)
    local delay, at, reason, rank, counts = unpack(outcome, 6, 10)
    local start = at == nil and tx.now + tonumber(delay) or math.max(tx.now, tonumber(at))
    if rank == nil then
        rank = job[f.RANK]
    end
    local ops = app.back_to_queue(job, start, rank, tx.now)
    ops[#ops + 1] = {'=', f.REASON, reason}
    ops[#ops + 1] = {'=', f.RANK, rank}
    if counts then
        ops[#ops + 1] = {'=', f.TRIES, job[f.TRIES] + 1}
    end
    app.move(tx, job, ops)
    app.count(tx, no, count_of.RETRIED, 1)
    tx.touched[name] = tx.touched[name] or true
end

local function bury(tx, no, job, reason)
    app.free_key(job)
    app.move(tx, job, {
        {'=', f.STATE, app.DEAD}, {'=', f.SORT, tx.now}, {'=', f.ENDED_AT, tx.now}, {'=', f.REASON, reason},
    })
    app.count(tx, no, count_of.BURIED, 1)
    app.report(tx, job, 'dead', reason)
end

app.verbs.settle = app.once(function(tx, names, outcomes, follow_ups)
    if #follow_ups > 0 then
        app.need_reserve()
    end
    local numbers, queues = app.numbers_of(names)
    for i, queue in pairs(queues) do
        if queue.total ~= nil then
            tx.touched[names[i]] = true -- one that ends makes room
        end
    end
    local refused, is_refused = {}, {}
    for position, outcome in ipairs(outcomes) do
        local no, kind = numbers[outcome[1]], outcome[5]
        local job = app.held(tx, no, outcome[2], outcome[3], outcome[4])
        local grown = job ~= nil and kind == 0 and outcome[6] ~= nil and app.grown(job, outcome[6])
        if job == nil or grown then
            refused[#refused + 1] = {position, grown and 1 or app.why_lost(tx, no, outcome[2], outcome[3], outcome[4])}
            is_refused[position] = true
        elseif kind == RETRY then
            retry(tx, no, names[outcome[1]], job, outcome)
        elseif kind ~= nil and kind > RETRY then
            bury(tx, no, job, outcome[6])
        else
            finish(tx, no, job, outcome[7])
        end
    end
    local jobs = {}
    for _, each in ipairs(follow_ups) do
        if not is_refused[each[1]] then
            for _, job in ipairs(each[2]) do
                jobs[#jobs + 1] = job
            end
        end
    end
    if #jobs > 0 then
        app.enqueue(tx, names, jobs)
    end
    return refused
end)
