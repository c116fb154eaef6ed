-- Lanes: which of their jobs are in the line and which are held. What must come out is in accoda/storage/protocol.py.
--
-- A job of a lane that is ready, held or taken has a row in accoda_lanes. Where a job moves, its row is written in the
-- same transaction and its lane is noted in the transaction; `balance` then looks only at the lanes that are noted. It
-- reads all that it decides by from the indexes of the rows, so nothing else is kept of a lane.
local app = ...
local msgpack = require('msgpack')
local f = app.field
local HELD, READY, TAKEN = app.HELD, app.READY, app.TAKEN
local JOB, QUEUE, LANE, STATE, RANK, SORT = 1, 2, 3, 4, 5, 6 -- the fields of a row
local TURN, NEWCOMER = 2 ^ -40, 1 - 2 ^ -10 -- as in accoda/model.py
local PAGE = 1000 -- lanes and jobs of one step, where all lanes of a queue are balanced

-- By queue: the tuple of its rules, and what is in it, so that rules are decoded once after each change.
local cache = app.memory.rules or {}
app.memory.rules = cache

-- The rules in a tuple; nil where they cannot be read, because no Accoda wrote them.
local function decoded(row)
    local ok, rules = pcall(msgpack.decode, tostring(row[2])) -- bytes are no string in 3.x
    if not ok or type(rules) ~= 'table' then
        return nil
    end
    for _, map in ipairs({'limits', 'weights'}) do
        rules[map] = type(rules[map]) == 'table' and rules[map] or {}
    end
    return rules
end

-- The rules of a queue, or nil.
local function rules_of(no)
    local row, known = box.space.accoda_rules:get(no), cache[no]
    if row == nil then
        cache[no] = nil
        return nil
    elseif known == nil or known.row ~= row then -- tuples are equal where they are the same one in memory
        known = {row = row, rules = decoded(row)}
        cache[no] = known
    end
    return known.rules
end

local function limit_of(rules, lane)
    local limit = rules.limits[lane]
    if type(limit) == 'nil' then -- not there; a limit that is lifted is null, which only equals nil
        limit = rules.limit
    end
    return tonumber(limit) or math.huge
end

-- The length of the turn of a job.
local function turn_of(rules, row)
    local cost = 1
    if rules.by_cost then
        local job = row.unwritten or box.space.accoda_jobs:get(row[JOB])
        cost = job ~= nil and math.max(app.plain(job[f.COST]), 1) or 1
    end
    return cost / (tonumber(rules.weights[row[LANE]]) or 1) * TURN
end

-- Notes a lane that is to be balanced, and gives the list of the new jobs that come in with it.
local function note(tx, no, lane)
    tx.lanes = tx.lanes or {}
    local lanes = tx.lanes[no] or {}
    tx.lanes[no] = lanes
    local coming = lanes[lane] or {}
    lanes[lane] = coming
    return coming
end

-- A new job without a key, as it is to be inserted: it is written only when its lane is balanced, since then it is known
-- whether it is ready, and until then no other step of the transaction asks for it.
function app.come(tx, job)
    table.insert(note(tx, job[f.QUEUE], job[f.LANE]), job)
end

-- Writes the row of a job that is ready, held or taken.
function app.put(job)
    box.space.accoda_lanes:replace({
        job[f.ID], job[f.QUEUE], job[f.LANE], job[f.STATE], app.plain(job[f.RANK]), app.plain(job[f.SORT]),
    })
end

-- Deletes the row of a job, if it has one, and notes its lane.
function app.displace(tx, id)
    local row = box.space.accoda_lanes:delete(id)
    if row ~= nil then
        note(tx, row[QUEUE], row[LANE])
    end
end

-- Puts the row of a job right that has moved, and notes its lane.
function app.place(tx, job)
    local state = job[f.STATE]
    if state == HELD or state == READY or state == TAKEN then
        app.put(job)
        note(tx, job[f.QUEUE], job[f.LANE])
    else
        app.displace(tx, job[f.ID])
    end
end

-- Takes a job of a lane into the line, or out of it. A row without a job, which no Accoda wrote, is deleted. `unwritten`
-- is the job itself where it is new and not written yet.
local function shift(tx, row, state, sort)
    local id, no, lane = row[JOB], row[QUEUE], row[LANE]
    if row.unwritten ~= nil then
        row.unwritten[f.STATE], row.unwritten[f.SORT] = state, sort
        box.space.accoda_jobs:insert(row.unwritten)
    elseif box.space.accoda_jobs:update(id, {{'=', f.STATE, state}, {'=', f.SORT, sort}}) == nil then
        app.displace(tx, id)
        return
    end
    box.space.accoda_lanes:replace({id, no, lane, state, row[RANK], sort})
    app.count_state(tx, no, row[STATE], -1)
    app.count_state(tx, no, state, 1)
end

local function is_of(row, no, lane, state)
    return row[QUEUE] == no and row[LANE] == lane and row[STATE] == state
end

local function is_before(row, other)
    return row[RANK] < other[RANK] or (row[RANK] == other[RANK] and row[JOB] < other[JOB])
end

-- The highest turn of the lane's own jobs in the line at a level, or nil.
local function last_turn(no, lane, level)
    local index = box.space.accoda_lanes.index.turn
    local row = index:select({no, lane, READY, level + 1}, {iterator = 'LT', limit = 1})[1]
    return row ~= nil and is_of(row, no, lane, READY) and row[SORT] >= level and row[SORT] or nil
end

-- The lowest turn of the jobs of lanes in the line at a level; the level itself where there is none.
local function first_turn(no, level)
    local index = box.space.accoda_lanes.index.line
    local row = index:select({no, READY, level}, {iterator = 'GE', limit = 1})[1]
    local is_its = row ~= nil and row[QUEUE] == no and row[STATE] == READY
    return is_its and row[SORT] < level + 1 and row[SORT] or level
end

-- What orders a job in a fair line.
local function turn(rules, row)
    local no, lane, level = row[QUEUE], row[LANE], math.floor(row[RANK])
    local length, last = turn_of(rules, row), last_turn(no, lane, level)
    local turn = last ~= nil and last + length or first_turn(no, level) + length * NEWCOMER
    if turn < level + 1 or level + 1 == level then
        return turn
    end
    return level + 1 - TURN
end

-- The rows of the best held jobs of a lane: one more than there are places for, to know of it.
local function best_held(no, lane, free)
    local limit = math.min(math.max(free, 0) + 1, 2 ^ 31)
    return box.space.accoda_lanes.index.rank:select({no, lane, HELD}, {limit = limit})
end

-- Holds back the jobs in the line that are not among the best of the lane, and gives the rows of the held ones that are.
-- `free`: how many places are left; below 0 where there are too many in the line or running. `best`: the best held ones
-- where they were read already. And how many it held back.
local function choose(tx, no, lane, free, best)
    local by_rank, back = box.space.accoda_lanes.index.rank, 0
    local function worst()
        return by_rank:max({no, lane, READY})
    end
    local function hold(row)
        shift(tx, row, HELD, row[RANK])
        free, back = free + 1, back + 1
    end
    while free < 0 and worst() ~= nil do
        hold(worst())
    end
    best = best or best_held(no, lane, free)
    -- There is no place for the last of these, unless it is better than the worst in the line. Then so may the next be.
    while #best > free do
        local last, other = best[#best], worst()
        if other == nil or not is_before(last, other) then
            best[#best] = nil
            break
        end
        hold(other)
        local next = by_rank:select({no, lane, HELD, last[RANK], last[JOB]}, {iterator = 'GT', limit = 1})[1]
        best[#best + 1] = next ~= nil and is_of(next, no, lane, HELD) and next or nil
    end
    return best, back
end

-- Writes new jobs, which are held at first.
local function write_held(coming)
    for _, job in ipairs(coming) do
        box.space.accoda_jobs:insert(job)
        app.put(job)
    end
end

-- Adds new jobs to the rows of held ones, in order.
local function merge(held, no, lane, coming)
    for _, job in ipairs(coming) do
        held[#held + 1] = {job[f.ID], no, lane, HELD, app.plain(job[f.RANK]), unwritten = job}
    end
    if #coming > 0 then
        table.sort(held, is_before)
    end
end

-- Of the ready and held jobs of a lane, in the order of rank and id, as many are ready as its limit allows. How many jobs
-- were moved, and whether one has come into the line.
local function balance_lane(tx, no, lane, rules, coming)
    local by_rank, free, back = box.space.accoda_lanes.index.rank, math.huge, 0
    local limit = rules ~= nil and limit_of(rules, lane) or math.huge
    if limit < math.huge then
        free = limit - by_rank:count({no, lane, TAKEN}) - by_rank:count({no, lane, READY})
    end
    local best = free >= 0 and best_held(no, lane, free) or nil
    if best ~= nil and #best + #coming <= free then
        merge(best, no, lane, coming) -- there is a place for all
    else
        write_held(coming)
        best, back = choose(tx, no, lane, free, #coming == 0 and best or nil)
    end
    for _, row in ipairs(best) do
        shift(tx, row, READY, rules ~= nil and rules.fair and turn(rules, row) or row[RANK])
    end
    return back + #best, #best > 0
end

-- Wakes those that wait for a queue where a job has come into the line.
local function fill(tx, no)
    local queue = box.space.accoda_queues:get(no)
    if queue ~= nil then
        local fills = not queue.paused and queue.total == nil
        tx.touched[queue.name] = fills and app.FILLED or tx.touched[queue.name] or true
    end
end

local function balance_lanes(tx, no, lanes)
    local names, rules, filled = {}, rules_of(no), false
    for name in pairs(lanes) do
        names[#names + 1] = name
    end
    table.sort(names)
    for _, name in ipairs(names) do
        local _, came = balance_lane(tx, no, name, rules, lanes[name])
        filled = filled or came
    end
    if filled then
        fill(tx, no)
    end
end

-- Balances the lanes that were noted. The order matters: each job that comes into a fair line has its turn from those
-- that are in it. Strings are compared by their bytes, which is the order of their code points.
function app.balance(tx)
    while tx.lanes ~= nil do -- a second time only where rows without a job were found
        local noted = tx.lanes
        tx.lanes = nil
        for no, lanes in pairs(noted) do
            balance_lanes(tx, no, lanes)
        end
    end
end

-- The first lane of a queue behind another one, by name, or nil.
function app.lane_after(no, lane)
    local row = box.space.accoda_lanes.index.rank:select({no, lane}, {iterator = 'GT', limit = 1})[1]
    return row ~= nil and row[QUEUE] == no and row[LANE] or nil
end

-- Puts the rows of a lane right. They are wrong only where jobs were changed or deleted by hand; such rows would hold
-- places of the lane for ever.
local function repair(tx, no, lane)
    local lanes = box.space.accoda_lanes
    for _, row in ipairs(lanes.index.rank:select({no, lane})) do
        local job = box.space.accoda_jobs:get(row[JOB])
        if job == nil or job[f.LANE] ~= lane or job[f.QUEUE] ~= no then
            lanes:delete(row[JOB])
        elseif job[f.STATE] ~= row[STATE] then
            app.place(tx, job)
        end
    end
end

-- Balances the lanes of a queue behind one, by name: the last of them, or nil where none is left.
function app.balance_page(tx, no, lane)
    local rules, left = rules_of(no), PAGE
    while left > 0 do
        lane = app.lane_after(no, lane)
        if lane == nil then
            return nil
        end
        repair(tx, no, lane)
        left = left - 1 - balance_lane(tx, no, lane, rules, {})
    end
    return lane
end
