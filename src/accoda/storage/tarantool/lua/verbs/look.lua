-- Whether something is takable in one of the queues, and if not, how soon it may be. Moves no job; but results that were
-- kept until now go, so that they go where nobody takes or counts.
--
-- arguments: now, names {queue, …}, detailed: whether to say more
-- answer: {takable, ms until the next moment to look or nil}: a length of time, so that no client's clock matters; and
--         where more is asked for, whether one of them is paused, and whether at that moment a job starts, unless
--         something happens to it: then nobody need look again. (A lease that ends then will mostly have been settled.)
local app = ...
local f = app.field

local AGAIN = 10 -- ms until more results go

local function next_moment(tx, queue)
    local moment = app.paused_until(queue, tx.now)
    if moment ~= nil then
        return {at = moment, paused = true}
    end
    -- The jobs, not the counts: who slept or spun because of a wrong count would do so for ever.
    local no, line = queue[1], box.space.accoda_jobs.index.line
    if line:min({no, app.READY}) ~= nil then
        return {at = tx.now}
    end
    app.end_the_endless(tx, no)
    local start, lease_end = line:min({no, app.DELAYED}), line:min({no, app.TAKEN})
    start = start ~= nil and app.number(start[f.SORT]) or math.huge
    lease_end = lease_end ~= nil and app.number(lease_end[f.SORT]) or math.huge
    moment = math.min(start, lease_end)
    if moment > tx.now and app.forget_kept(tx, no) then
        moment = math.min(moment, tx.now + AGAIN)
    end
    return {at = moment, starts = start == moment}
end

app.verbs.look = app.atomic(function(tx, names, detailed)
    local soonest, closed, starts = math.huge, false, false
    for _, name in ipairs(names) do
        local queue = app.find_queue(name)
        if queue ~= nil then
            local found = next_moment(tx, queue)
            closed = closed or found.paused == true
            if found.at < soonest then
                soonest, starts = found.at, found.starts == true
            end
        end
    end
    local takable, due_in = soonest <= tx.now, box.NULL
    if not takable and soonest ~= math.huge then
        due_in = soonest - tx.exact
    end
    if detailed then
        return {takable, due_in, closed, starts and not takable}
    end
    return {takable, due_in}
end)
