-- Whether something is takable in one of the queues, and if not, how soon it may be. Changes nothing.
--
-- arguments: now, names {queue, …}
-- answer: {takable, ms until the next moment to look or nil}: a length of time, so that no client's clock matters
local app = ...
local f = app.field

local function next_moment(queue, now)
    local moment = app.paused_until(queue, now)
    if moment ~= nil then
        return moment
    end
    if queue.ready > 0 then
        return now
    end
    moment = math.huge
    local line = box.space.accoda_jobs.index.line
    for _, state in ipairs({app.DELAYED, app.TAKEN}) do
        local first = queue[app.COUNTS + state] > 0 and line:min({queue[1], state}) or nil
        if first ~= nil then
            moment = math.min(moment, tonumber(first[f.SORT]))
        end
    end
    return moment
end

app.verbs.look = app.atomic(function(tx, names)
    local soonest = math.huge
    for _, name in ipairs(names) do
        local queue = app.find_queue(name)
        if queue ~= nil then
            soonest = math.min(soonest, next_moment(queue, tx.now))
        end
    end
    if soonest <= tx.now then
        return {true, box.NULL}
    end
    return {false, soonest == math.huge and box.NULL or soonest - tx.exact}
end)
