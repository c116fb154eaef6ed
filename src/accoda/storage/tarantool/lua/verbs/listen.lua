-- Answers when one of the queues was touched since `seen`, or when the time is over. Takes nothing and writes nothing.
-- A newer `listen` of the same connection ends an older one.
--
-- arguments: now (not used), names {queue, …}, seen: the count of the last answer or nil, seconds
-- answer: {count, {{queue that was touched, whether a job is ready there and it is not paused}, …}}
local app = ...
local MOST_SECONDS = 60

app.verbs.listen = function(_, names, seen, seconds)
    local wakeups = app.wakeups
    local since = seen == nil and wakeups.count or seen
    local function touched()
        local found = {}
        for _, name in ipairs(names) do
            if (wakeups.changed[name] or 0) > since then
                found[#found + 1] = {name, (wakeups.filled[name] or 0) > since}
            end
        end
        return found
    end
    local found = touched()
    -- From here to the end of the wait nothing yields: no wake-up falls between the look and the sleep.
    if #found == 0 then
        app.park(names, math.min(seconds, MOST_SECONDS))
        found = touched()
    end
    return {wakeups.count, found}
end
