-- Answers when one of the queues has rung since `seen`, or when the time is over. Takes nothing and writes nothing.
-- A newer `listen` of the same connection ends an older one.
--
-- arguments: now (not used), names {queue, …}, seen: the count of the last answer or nil, seconds
-- answer: {count, {queue that rang, …}}, and '+' before a name once more where a job is ready and the queue is open
local app = ...
local MOST_SECONDS = 60

app.verbs.listen = function(_, names, seen, seconds)
    local bells = app.bells
    local since = seen == nil and bells.count or seen
    local function rung()
        local found = {}
        for _, name in ipairs(names) do
            if (bells.rung[name] or 0) > since then
                found[#found + 1] = name
                if (bells.filled[name] or 0) > since then
                    found[#found + 1] = '+' .. name
                end
            end
        end
        return found
    end
    local found = rung()
    -- From here to the end of the wait nothing yields: no bell falls between the look and the sleep.
    if #found == 0 then
        app.park(names, math.min(seconds, MOST_SECONDS))
        found = rung()
    end
    return {bells.count, found}
end
