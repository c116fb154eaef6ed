-- What every verb runs in: one box transaction, its present moment, its counts, and the queues that it touched.
local app = ...
local clock = require('clock')

-- States, and the fields of a job's tuple by their numbers (see install.lua).
-- One below DEAD waits or runs, and holds its key.
app.HELD, app.READY, app.DELAYED, app.TAKEN, app.DEAD, app.DONE, app.CANCELLED = -1, 0, 1, 2, 3, 4, 5
app.field = {
    ID = 1, QUEUE = 2, STATE = 3, DATA = 4, RANK = 5, COST = 6, KEY = 7, ATTEMPTS = 8, CREATED_AT = 9, START_TIME = 10,
    PREV_START_TIME = 11, WAITERS = 12, KEEP_FOR = 13, WORKER = 14, TAKEN_AT = 15, SORT = 16, ENDED_AT = 17,
    REASON = 18, RESULT = 19, TRIES = 20, CRASHES = 21, LANE = 22, REPORTS_TO = 23,
}
-- The counts of a queue's tuple. The count of a state is at COUNTS + state, up to DEAD; the others are counts of events.
app.COUNTS = 4
app.count_of = {DONE = 8, RETRIED = 9, BURIED = 10, EXPIRED = 11, CANCELLED = 12, PROMOTED = 13}
app.DUE_AT_ONCE = 1000 -- as in accoda/storage/protocol.py
app.FILLED = 'filled' -- how a queue was touched: a job is ready there, it is not paused and has no `total`

-- What outlives an upgrade of the application, but not the server: see the stub.
local memory = app.memory
memory.committing = memory.committing or 0

-- Writes the counts that a transaction has gathered, one update for each queue.
function app.flush(tx)
    for queue, counts in pairs(tx.counts) do
        local ops, size = {}, 0
        for column, change in pairs(counts) do
            if change ~= 0 then
                size = size + 1
                ops[size] = {'+', column, change}
            end
        end
        if size > 0 then
            box.space.accoda_queues:update(queue, ops)
        end
    end
    tx.counts = {}
end

function app.count(tx, queue, column, change)
    local counts = tx.counts[queue]
    if counts == nil then
        counts = {}
        tx.counts[queue] = counts
    end
    counts[column] = (counts[column] or 0) + change
end

-- There are more jobs of the queue in a state, or fewer. States that no Accoda wrote have no count.
function app.count_state(tx, queue, state, change)
    if state >= app.HELD and state <= app.DEAD then
        app.count(tx, queue, app.COUNTS + state, change)
    end
end

-- What a verb does last.
local function complete(tx)
    if tx.reports ~= nil then
        app.store_reports(tx) -- so that a flow finds what its job left for it before the report
    end
    if tx.lanes ~= nil then
        app.balance(tx)
    end
    if next(tx.counts) ~= nil then
        app.flush(tx)
    end
end

local function is_full(problem)
    return type(problem) == 'cdata' and problem.type == 'OutOfMemory' -- which has no code in 2.x
end

-- Makes a verb of `body(tx, …)`. The verb's own first argument is the present moment in ms, or nil for the server's
-- clock: only tests pass one.
--
-- Why it is atomic: the server runs fibers one at a time and switches only where one yields. Reading and changing memtx
-- spaces never yields, so between box.begin and box.commit no other fiber runs, and no other verb can see or change
-- what this one looks at. (Should a body ever yield, the server aborts the transaction with an error: a mistake here is
-- loud.)
-- box.commit yields while the log is written. Others may then see what is not yet on disk; but their own changes come
-- after it in the log, so they are acknowledged only after it, and if its write fails they are rolled back with it.
-- `grows` says that the verb only adds: see 5_memory_reserve.lua.
function app.atomic(body, grows)
    local again = false -- a second run, after memory was freed
    local function verb(now, ...)
        local exact = now == nil and clock.time() * 1000 or tonumber(now)
        local tx = {now = math.floor(exact), exact = exact, counts = {}, touched = {}, may_move = app.DUE_AT_ONCE}
        box.begin()
        local ok, answer = pcall(body, tx, ...)
        if ok then
            local problem
            ok, problem = pcall(complete, tx)
            if not ok then
                answer = problem
            end
        end
        if not ok then
            box.rollback()
            if again or not is_full(answer) then
                error(answer, 0)
            end
            app.free_memory(not grows)
            again = true
            local done, result = pcall(verb, now, ...) -- nothing of the first run is left
            again = false
            if not done then
                error(result, 0)
            end
            return result
        end
        memory.committing = memory.committing + 1
        local written, problem = pcall(box.commit)
        memory.committing = memory.committing - 1
        if not written then
            error(problem, 0)
        end
        -- Only now: a client that is woken must find what it was woken for.
        for queue, how in pairs(tx.touched) do
            app.wake(queue, how == app.FILLED)
        end
        return answer
    end
    return verb
end

-- For an answer that changed nothing but vouches for something ("this job is kept", "this is the document"): where
-- another transaction is still being written, write a row behind it, so that the answer goes out only when that one is
-- safe too.
function app.stand_behind()
    if memory.committing > 0 then
        box.space.accoda_numbers:replace({'barrier', 0})
    end
end
