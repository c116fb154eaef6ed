-- Lanes: which of their jobs are in the line and which are held. What must come out is in accoda/storage/protocol.py.
--
-- A job of a lane that is ready, held or taken has a row in accoda_lanes. Where a job moves, its row is written in the
-- same transaction and its lane is noted in the transaction; `balance` then looks only at the lanes that are noted. It
-- reads all that it decides by from the indexes of the rows, so nothing else is kept of a lane.
local app = ...
local f = app.field
local HELD, READY, TAKEN = app.HELD, app.READY, app.TAKEN
local JOB, QUEUE, LANE, STATE, RANK, SORT = 1, 2, 3, 4, 5, 6 -- the fields of a row
local MOST = 1000 -- jobs of a lane that one step moves, and lanes that it looks at, where it balances all of a queue

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

-- What a row has of the `sort` of its job: see install.lua.
local function sort_of(state, sort)
    return state == READY and {sort} or {}
end

-- Writes the row of a job that is ready, held or taken.
function app.put(job)
    local state = job[f.STATE]
    box.space.accoda_lanes:replace({
        job[f.ID], job[f.QUEUE], job[f.LANE], state, app.plain(job[f.RANK]), sort_of(state, app.plain(job[f.SORT])),
    })
end

-- The same for a job that was ready and is taken now.
local to_taken = {{'=', STATE, TAKEN}, {'=', SORT, sort_of(TAKEN)}}
function app.put_taken(job)
    if box.space.accoda_lanes:update(job[f.ID], to_taken) == nil then
        app.put(job) -- its row was deleted by hand
    end
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

-- Takes a job of a lane into the line, or out of it. A row without a job, which no Accoda wrote, is deleted. A row that
-- is a Lua table is that of a new job, which is not written yet.
local function shift(tx, row, state, sort)
    local id, no = row[JOB], row[QUEUE]
    if type(row) == 'table' then
        local job = row.job
        job[f.STATE], job[f.SORT] = state, sort
        box.space.accoda_jobs:insert(job)
        box.space.accoda_lanes:insert({id, no, row[LANE], state, row[RANK], sort_of(state, sort)})
    elseif box.space.accoda_jobs:update(id, {{'=', f.STATE, state}, {'=', f.SORT, sort}}) == nil then
        app.displace(tx, id)
        return
    else
        box.space.accoda_lanes:update(id, {{'=', STATE, state}, {'=', SORT, sort_of(state, sort)}})
    end
    app.count_state(tx, no, row[STATE], -1)
    app.count_state(tx, no, state, 1)
end

local function is_of(row, no, lane, state)
    return row[QUEUE] == no and row[LANE] == lane and row[STATE] == state
end

local function is_before(row, other)
    return row[RANK] < other[RANK] or (row[RANK] == other[RANK] and row[JOB] < other[JOB])
end

-- A lane is balanced over a group of queues, mostly one: so each of these asks in all of them.

-- How many jobs are in the line or running, unless all may be; whether some are held; and whether there are none at all.
-- The held ones come first in the index, so one look tells what else to ask for: mostly nothing or little.
local function count(group, lane, limit)
    local by_rank, sum, holds, is_empty = box.space.accoda_lanes.index.rank, 0, false, true
    for _, no in ipairs(group) do
        local first = by_rank:min({no, lane})
        local is_held = first ~= nil and first[STATE] == HELD
        if first ~= nil and limit < math.huge then
            local others = is_held and by_rank:count({no, lane, READY}) + by_rank:count({no, lane, TAKEN})
            sum = sum + (others or by_rank:count({no, lane}))
        end
        holds, is_empty = holds or is_held, is_empty and first == nil
    end
    return sum, holds, is_empty
end

-- The worst job in the line, or nil.
local function worst(group, lane)
    local by_rank, found = box.space.accoda_lanes.index.rank, nil
    for _, no in ipairs(group) do
        local row = by_rank:max({no, lane, READY})
        if row ~= nil and (found == nil or is_before(found, row)) then
            found = row
        end
    end
    return found
end

-- The best held job behind another one, or nil.
local function held_after(group, lane, other)
    local by_rank, found = box.space.accoda_lanes.index.rank, nil
    for _, no in ipairs(group) do
        local row = by_rank:select({no, lane, HELD, other[RANK], other[JOB]}, {iterator = 'GT', limit = 1})[1]
        if row ~= nil and is_of(row, no, lane, HELD) and (found == nil or is_before(row, found)) then
            found = row
        end
    end
    return found
end

-- The rows of the best held jobs: one more than there are places for, to know of it, but no more than one step moves.
local function best_held(group, lane, free)
    local by_rank, limit = box.space.accoda_lanes.index.rank, math.min(free + 1, MOST)
    local found = by_rank:select({group[1], lane, HELD}, {limit = limit})
    if #group == 1 then
        return found
    end
    for i = 2, #group do
        for _, row in ipairs(by_rank:select({group[i], lane, HELD}, {limit = limit})) do
            found[#found + 1] = row
        end
    end
    table.sort(found, is_before)
    for i = #found, limit + 1, -1 do
        found[i] = nil
    end
    return found
end

-- Holds back the jobs in the line that are not among the best of the lane, and gives the rows of the held ones that are;
-- and how many it held back. `free`: how many places are left; below 0 where there are too many in the line or running.
-- `best`: the best held ones where they were read already.
local function choose(tx, group, lane, free, best)
    local back = 0
    local function hold(row)
        shift(tx, row, HELD, row[RANK])
        free, back = free + 1, back + 1
    end
    local other = free < 0 and worst(group, lane) or nil
    while other ~= nil and free < 0 and back < MOST do
        hold(other)
        other = worst(group, lane)
    end
    if free < 0 then
        return {}, back
    end
    best = best or best_held(group, lane, free)
    -- There is no place for the last of these, unless it is better than the worst in the line. Then so may the next be.
    while #best > free do
        local last = best[#best]
        other = worst(group, lane)
        if back == MOST or other == nil or not is_before(last, other) then
            best[#best] = nil
            break
        end
        hold(other)
        best[#best + 1] = held_after(group, lane, last)
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
local function merge(held, lane, coming)
    for _, job in ipairs(coming) do
        held[#held + 1] = {job[f.ID], job[f.QUEUE], lane, HELD, app.plain(job[f.RANK]), job = job}
    end
    if #coming > 0 then
        table.sort(held, is_before)
    end
end

-- Takes held jobs into the line. `filled`: the queues where one has come in; `is_empty`: whether the lane was empty.
local function let_in(tx, group, lane, rows, filled, is_empty)
    local lasts = {is_empty = is_empty}
    for _, row in ipairs(rows) do
        local no = row[QUEUE]
        local rules = group.rules[no]
        local sort = rules ~= nil and rules.fair and app.turn(rules, row, lane, tx.firsts, lasts) or row[RANK]
        shift(tx, row, READY, sort)
        filled[no] = true
    end
end

-- Of the ready and held jobs of a lane, in the order of rank and id, as many are ready as its limit allows; but about MOST
-- are moved at most, beside new ones, and the next step that touches the lane goes on. No job comes in while there are too
-- many, so a step that is cut short never makes a lane exceed its limit. How many jobs were moved.
local function balance_lane(tx, group, lane, coming, filled)
    local limit, back = app.limit_of(group, lane), 0
    local busy, holds, is_empty = count(group, lane, limit)
    local free = limit - busy
    local best = not holds and {} or free >= 0 and best_held(group, lane, free) or nil
    if best ~= nil and #best < MOST and #best + #coming <= free then
        merge(best, lane, coming) -- there is a place for all
    else
        write_held(coming)
        best, back = choose(tx, group, lane, free, #coming == 0 and best or nil)
    end
    if back > 0 then
        tx.firsts = {} -- the lowest turns of the line may have gone: see app.turn
    end
    let_in(tx, group, lane, best, filled, is_empty)
    return back + #best
end

-- Wakes those that wait for queues where jobs have come into the line.
local function wake(tx, filled)
    for no in pairs(filled) do
        local queue = box.space.accoda_queues:get(no)
        if queue ~= nil then
            local fills = not queue.paused and queue.total == nil
            tx.touched[queue.name] = fills and app.FILLED or tx.touched[queue.name] or true
        end
    end
end

-- The lanes that were noted, by the first queue of their group: queues that share limits have their lanes in common.
local function by_group(noted)
    local groups, lanes_of = {}, {}
    for no, lanes in pairs(noted) do
        local group = app.group_of(no)
        local first = group[1]
        local all = lanes_of[first]
        if all == nil then
            groups[first], lanes_of[first] = group, lanes
        else
            for lane, coming in pairs(lanes) do
                for _, job in ipairs(all[lane] == nil and {} or coming) do
                    table.insert(all[lane], job)
                end
                all[lane] = all[lane] or coming
            end
        end
    end
    return groups, lanes_of
end

local function balance_lanes(tx, group, lanes, filled)
    local names = {}
    for name in pairs(lanes) do
        names[#names + 1] = name
    end
    table.sort(names)
    for _, name in ipairs(names) do
        balance_lane(tx, group, name, lanes[name], filled)
    end
end

-- Balances the lanes that were noted. The order matters: each job that comes into a fair line has its turn from those
-- that are in it. Strings are compared by their bytes, which is the order of their code points.
function app.balance(tx)
    local filled = {}
    while tx.lanes ~= nil do -- a second time only where rows without a job were found
        local groups, lanes_of = by_group(tx.lanes)
        tx.lanes, tx.firsts = nil, {}
        for first, group in pairs(groups) do
            balance_lanes(tx, group, lanes_of[first], filled)
        end
    end
    wake(tx, filled)
end

-- The first lane of these queues behind another one, by name, or nil.
function app.lane_after(group, lane)
    local first = nil
    for _, no in ipairs(group) do
        local row = box.space.accoda_lanes.index.rank:select({no, lane}, {iterator = 'GT', limit = 1})[1]
        if row ~= nil and row[QUEUE] == no and (first == nil or row[LANE] < first) then
            first = row[LANE]
        end
    end
    return first
end

-- Puts the rows of a lane right that have its places. They are wrong only where jobs were changed or deleted by hand;
-- such rows would hold the places for ever.
local function repair(tx, group, lane)
    local lanes, limit = box.space.accoda_lanes, app.limit_of(group, lane)
    for _, no in ipairs(limit < math.huge and group or {}) do
        for _, state in ipairs({READY, TAKEN}) do
            for _, row in ipairs(lanes.index.rank:select({no, lane, state}, {limit = math.max(limit, 0)})) do
                local job = box.space.accoda_jobs:get(row[JOB])
                if job == nil or job[f.LANE] ~= lane or job[f.QUEUE] ~= no then
                    lanes:delete(row[JOB])
                elseif job[f.STATE] ~= row[STATE] then
                    app.place(tx, job)
                end
            end
        end
    end
end

-- Balances the lanes of a queue, and of those that share its limits, behind one, by name: as many as one step may. The
-- last lane that is balanced, or nil where none is left.
function app.balance_page(tx, no, lane)
    local group, filled, left = app.group_of(no), {}, MOST
    tx.firsts = {}
    while lane ~= nil and left > 0 do
        local next, moved = app.lane_after(group, lane), 0
        if next ~= nil then
            repair(tx, group, next)
            moved = balance_lane(tx, group, next, {}, filled)
        end
        if moved < MOST then
            lane = next
        end -- else there may be more to move: the next step begins with it again
        left = left - 1 - moved
    end
    wake(tx, filled)
    return lane
end
