-- Wakes clients that wait: each connection has at most one `listen` parked here, and it takes nothing, so a client that
-- goes away loses nothing.
local app = ...
local fiber = require('fiber')

-- count: how many wake-ups there were; changed: for each queue, the count at its last one; filled: at the last one for
-- which a job was ready, so that a client need not look first; listeners: by session id; by_queue: for each queue, the
-- set of its listeners, so that a wake-up costs nothing where none listens.
local wakeups = app.memory.wakeups or {count = 0, changed = {}, filled = {}, listeners = {}, by_queue = {}}
app.memory.wakeups = wakeups
app.wakeups = wakeups

function app.wake(queue, filled)
    wakeups.count = wakeups.count + 1
    wakeups.changed[queue] = wakeups.count
    if filled then
        wakeups.filled[queue] = wakeups.count
    end
    for listener in pairs(wakeups.by_queue[queue] or {}) do
        listener.cond:signal()
    end
end

-- Ends the listener of a session, if it has one.
local function dismiss(session)
    local listener = wakeups.listeners[session]
    if listener ~= nil then
        wakeups.listeners[session] = nil
        listener.dismissed = true
        listener.cond:signal()
    end
end

-- Parks this fiber until one of the queues is touched, the time is over, the client is gone, or a newer listener of the
-- same connection takes its place.
function app.park(queues, seconds)
    local session = box.session.id()
    dismiss(session)
    local listener = {cond = fiber.cond()}
    wakeups.listeners[session] = listener
    for _, queue in ipairs(queues) do
        local listeners = wakeups.by_queue[queue] or {}
        wakeups.by_queue[queue] = listeners
        listeners[listener] = true
    end
    -- pcall: if this fiber is cancelled, the listener still has to be taken off the lists.
    local ok, problem = pcall(listener.cond.wait, listener.cond, seconds)
    for _, queue in ipairs(queues) do
        local listeners = wakeups.by_queue[queue] or {}
        listeners[listener] = nil
        if next(listeners) == nil then
            wakeups.by_queue[queue] = nil
        end
    end
    if not listener.dismissed then
        wakeups.listeners[session] = nil
    end
    if not ok then
        error(problem, 0)
    end
end

-- Otherwise a fiber that waits for a client that is gone would stay until its time is over.
local function on_disconnect()
    dismiss(box.session.id())
end
box.session.on_disconnect(on_disconnect, app.memory.on_disconnect)
app.memory.on_disconnect = on_disconnect
