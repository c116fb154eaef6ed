-- Whether something is takable in one of the queues, and if not, how soon it may be. Moves no job; but results that were
-- kept until now go, so that they go where nobody takes or counts.
--
-- arguments: now, names {queue, …}
-- answer: {takable, ms until the next moment to look or nil}: a length of time, so that no client's clock matters
local app = ...
local f = app.field

local AGAIN = 10 -- ms until more results go

local function next_moment(tx, queue)
    local moment = app.paused_until(queue, tx.now)
    if moment ~= nil then
        return moment
    end
    -- The jobs, not the counts: who slept or spun because of a wrong count would do so for ever.
    local no, line = queue[1], box.space.accoda_jobs.index.line
    if line:min({no, app.READY}) ~= nil then
        return tx.now
    end
    app.end_the_endless(tx, no)
    moment = math.huge
    for _, state in ipairs({app.DELAYED, app.TAKEN}) do
        local first = line:min({no, state})
        if first ~= nil then
            moment = math.min(moment, app.number(first[f.SORT]))
        end
    end
    if moment > tx.now and app.forget_kept(tx, no) then
        moment = math.min(moment, tx.now + AGAIN)
    end
    return moment
end

app.verbs.look = app.atomic(function(tx, names)
    local soonest = math.huge
    for _, name in ipairs(names) do
        local queue = app.find_queue(name)
        if queue ~= nil then
            soonest = math.min(soonest, next_moment(tx, queue))
        end
    end
    if soonest <= tx.now then
        return {true, box.NULL}
    end
    return {false, soonest == math.huge and box.NULL or soonest - tx.exact}
end)
