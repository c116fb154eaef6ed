-- Applies each outcome whose lease is current, then enqueues the follow-ups of the accepted ones, in one step.
--
-- arguments: now, receipt, names {queue, …}, outcomes, follow_ups {{position of the outcome, jobs as for enqueue}, …}
--            an outcome is {queue, id, attempts}, then for
--            done:  nothing, or 0, waiters that were seen or nil, result or nil
--            retry: 1, delay in ms, moment or nil, reason
--            bury:  2, reason
-- answer: {{position, grown}, …} of those that were refused; grown is false where the lease is lost
local app = ...
local f = app.field
local ID, STATE, RANK, KEY, ATTEMPTS = f.ID, f.STATE, f.RANK, f.KEY, f.ATTEMPTS
local START_TIME, PREV_START_TIME, SORT, KEEP_FOR = f.START_TIME, f.PREV_START_TIME, f.SORT, f.KEEP_FOR
local TAKEN, COUNTS, count, count_of = app.TAKEN, app.COUNTS, app.count, app.count_of
local RETRY = 1
local MOST = 2 ^ 56 -- ms: more than any keep_for

local function finish(tx, no, job, result)
    count(tx, no, count_of.DONE, 1)
    local keep_for = math.floor(app.number(job[KEEP_FOR]) * 1000 + 0.5)
    if not (keep_for >= 0 and keep_for < MOST) then
        keep_for = 0 -- damaged
    end
    if keep_for == 0 then
        app.forget(tx, job)
        return
    end
    if job[KEY] ~= nil then
        app.free_key(job)
    end
    if result == nil then
        result = box.NULL
    end
    app.note_end(box.space.accoda_jobs:update(job[ID], {
        {'=', STATE, app.DONE}, {'=', SORT, tx.now + keep_for}, {'=', f.ENDED_AT, tx.now}, {'=', f.RESULT, result},
    }))
    count(tx, no, COUNTS + TAKEN, -1)
    count(tx, no, COUNTS + app.DONE, 1)
end

local function retry(tx, no, name, job, outcome)
    local at = outcome[6]
    local start = at == nil and tx.now + tonumber(outcome[5]) or math.max(tx.now, tonumber(at))
    local state, sort = app.waiting(start, job[RANK], tx.now)
    box.space.accoda_jobs:update(job[ID], {
        {'=', STATE, state}, {'=', SORT, sort}, {'+', ATTEMPTS, 1}, {'=', PREV_START_TIME, job[START_TIME]},
        {'=', START_TIME, start}, {'=', f.REASON, outcome[7]},
    })
    count(tx, no, COUNTS + TAKEN, -1)
    count(tx, no, COUNTS + state, 1)
    count(tx, no, count_of.RETRIED, 1)
    tx.touched[name] = true
end

local function bury(tx, no, job, reason)
    if job[KEY] ~= nil then
        app.free_key(job)
    end
    app.note_end(box.space.accoda_jobs:update(job[ID], {
        {'=', STATE, app.DEAD}, {'=', SORT, 0}, {'=', f.ENDED_AT, tx.now}, {'=', f.REASON, reason},
    }))
    count(tx, no, COUNTS + TAKEN, -1)
    count(tx, no, COUNTS + app.DEAD, 1)
    count(tx, no, count_of.BURIED, 1)
end

app.verbs.settle = app.once(function(tx, names, outcomes, follow_ups)
    if #follow_ups > 0 then
        app.need_room()
    end
    local numbers = app.numbers_of(names)
    local refused, is_refused = {}, {}
    for position, outcome in ipairs(outcomes) do
        local no, kind = numbers[outcome[1]], outcome[4]
        local job = app.held(tx, no, outcome[2], outcome[3])
        if job == nil then
            refused[#refused + 1] = {position, false}
            is_refused[position] = true
        elseif kind == RETRY and job[RANK] - job[RANK] ~= 0 then -- no rank to go back with
            app.set_aside(tx, job, app.unreadable(job))
            refused[#refused + 1] = {position, false}
            is_refused[position] = true
        elseif kind == RETRY then
            retry(tx, no, names[outcome[1]], job, outcome)
        elseif kind ~= nil and kind > RETRY then
            bury(tx, no, job, outcome[5])
        elseif outcome[5] ~= nil and app.grown(job, outcome[5]) then
            refused[#refused + 1] = {position, true}
            is_refused[position] = true
        else
            finish(tx, no, job, outcome[6])
        end
    end
    local news = {}
    for _, each in ipairs(follow_ups) do
        if not is_refused[each[1]] then
            for _, new in ipairs(each[2]) do
                news[#news + 1] = new
            end
        end
    end
    if #news > 0 then
        app.enqueue(tx, names, news)
    end
    return refused
end)
