-- Wakes clients that wait: each connection has at most one `listen` parked here, and it takes nothing, so a client that
-- goes away swallows nothing.
local app = ...
local fiber = require('fiber')

-- count: how often any bell rang; rung: for each queue, the count when it last rang; filled: when it last rang because a
-- job is ready, so that who hears it need not look first; listeners: by session id;
-- by_queue: for each queue, the set of its listeners, so that a bell costs nothing where nobody listens.
local bells = app.memory.bells
if bells == nil then
    bells = {count = 0, rung = {}, listeners = {}, by_queue = {}}
    app.memory.bells = bells
end
bells.filled = bells.filled or {} -- since revision 7

function app.ring(queue, filled)
    bells.count = bells.count + 1
    bells.rung[queue] = bells.count
    if filled then
        bells.filled[queue] = bells.count
    end
    for listener in pairs(bells.by_queue[queue] or {}) do
        listener.cond:signal()
    end
end

-- Ends the listener of a session, if it has one.
local function dismiss(session)
    local listener = bells.listeners[session]
    if listener ~= nil then
        bells.listeners[session] = nil
        listener.dismissed = true
        listener.cond:signal()
    end
end

-- Parks this fiber until one of the queues rings, the time is over, the client is gone, or a newer listener of the same
-- connection takes its place.
function app.park(queues, seconds)
    local session = box.session.id()
    dismiss(session)
    local listener = {cond = fiber.cond()}
    bells.listeners[session] = listener
    for _, queue in ipairs(queues) do
        local listeners = bells.by_queue[queue] or {}
        bells.by_queue[queue] = listeners
        listeners[listener] = true
    end
    -- pcall: if this fiber is cancelled, the listener still has to be taken off the lists.
    local ok, problem = pcall(listener.cond.wait, listener.cond, seconds)
    for _, queue in ipairs(queues) do
        local listeners = bells.by_queue[queue] or {}
        listeners[listener] = nil
        if next(listeners) == nil then
            bells.by_queue[queue] = nil
        end
    end
    if not listener.dismissed then
        bells.listeners[session] = nil
    end
    if not ok then
        error(problem, 0)
    end
end

app.bells = bells

-- A fiber that waits for a client that is gone would stay until its time is over.
local function on_disconnect()
    dismiss(box.session.id())
end
box.session.on_disconnect(on_disconnect, app.memory.on_disconnect)
app.memory.on_disconnect = on_disconnect
