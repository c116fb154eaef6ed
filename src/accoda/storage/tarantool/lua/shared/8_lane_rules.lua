-- The rules of queues for their lanes: limits, the groups of queues that share them, and turns. What they mean is in
-- accoda/storage/protocol.py.
local app = ...
local msgpack = require('msgpack')
local f = app.field
local JOB, QUEUE, LANE, RANK, SORT = 1, 2, 3, 5, 6 -- fields of a row of accoda_lanes
local TURN, NEWCOMER = 2 ^ -40, 1 - 2 ^ -10 -- as in accoda/model.py

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
local function rules_of(no, row)
    local known = cache[no]
    if row == nil then
        cache[no] = nil
        return nil
    elseif known == nil or known.row ~= row then -- tuples are equal where they are the same one in memory
        known = {row = row, rules = decoded(row)}
        cache[no] = known
    end
    return known.rules
end

-- The numbers of the queues that share their limits with this one, itself included, in the order of their names; and
-- `rules`, by the number.
function app.group_of(no)
    local rules = box.space.accoda_rules
    local row = rules:get(no)
    if row == nil or row.shared == nil then
        return {no, rules = {[no] = rules_of(no, row)}}
    end
    local group, names = {rules = {}}, {}
    for i, each in ipairs(rules.index.shared:select({row.shared})) do
        local queue = box.space.accoda_queues:get(each.queue)
        group[i], names[each.queue] = each.queue, queue == nil and '' or queue.name
        group.rules[each.queue] = rules_of(each.queue, each)
    end
    table.sort(group, function(a, b) return names[a] < names[b] end)
    return group
end

-- Gives a queue its rules. A queue whose limits were shared with it before and are not any more, or nil.
function app.set_rules(no, stored, total, shared)
    local rules = box.space.accoda_rules
    local before = rules:get(no)
    box.space.accoda_queues:update(no, {
        {'=', 'total', total == nil and box.NULL or total}, {'=', 'shared', shared == nil and box.NULL or shared},
    })
    if stored == nil then
        rules:delete(no)
    else
        rules:replace({no, stored, shared == nil and box.NULL or shared})
    end
    if before == nil or before.shared == nil or before.shared == shared then
        return nil
    end
    local other = rules.index.shared:min({before.shared})
    return other ~= nil and other.queue or nil
end

-- The lowest limit that one of the queues gives a lane.
function app.limit_of(group, lane)
    local lowest = math.huge
    for _, rules in pairs(group.rules) do
        local limit = rules.limits[lane]
        if type(limit) == 'nil' then -- not there; a limit that is lifted is null, which only equals nil
            limit = rules.limit
        end
        lowest = math.min(lowest, tonumber(limit) or math.huge)
    end
    return lowest
end

-- The length of the turn of a job: a row, or a job that is not written yet.
local function length_of(rules, row, lane)
    local cost = 1
    if rules.by_cost then
        local job = type(row) == 'table' and row.job or box.space.accoda_jobs:get(row[JOB])
        cost = job ~= nil and math.max(app.plain(job[f.COST]), 1) or 1
    end
    return cost / (tonumber(rules.weights[lane]) or 1) * TURN
end

-- The highest turn of the lane's own jobs in the line at a level, or nil.
local function last_turn(no, lane, level)
    local index = box.space.accoda_lanes.index.turn
    local row = index:select({no, lane, level + 1}, {iterator = 'LT', limit = 1})[1]
    local is_its = row ~= nil and row[QUEUE] == no and row[LANE] == lane
    local sort = is_its and app.plain(row[SORT][1]) or -math.huge
    return sort >= level and sort or nil
end

-- The lowest turn of the jobs of lanes in the line at a level, or nil.
local function first_turn(no, level)
    local index = box.space.accoda_lanes.index.line
    local row = index:select({no, level}, {iterator = 'GE', limit = 1})[1]
    local is_its = row ~= nil and row[QUEUE] == no
    local sort = is_its and app.plain(row[SORT][1]) or math.huge
    return sort < level + 1 and sort or nil
end

-- What orders a job that comes into a fair line. `firsts` and `lasts`: by queue and level, the lowest turn of the line
-- and the last one of this lane, where they are known. They are read once: while jobs come in,
-- none leaves the line. `lasts.is_empty`: the lane had no job at all.
function app.turn(rules, row, lane, firsts, lasts)
    local no, level = row[QUEUE], math.floor(app.plain(row[RANK]))
    firsts[no], lasts[no] = firsts[no] or {}, lasts[no] or {}
    local length = length_of(rules, row, lane)
    local last = lasts[no][level]
    if last == nil and not lasts.is_empty then
        last = last_turn(no, lane, level)
    end
    local first = firsts[no][level] or first_turn(no, level)
    local turn = last ~= nil and last + length or (first or level) + length * NEWCOMER
    if turn >= level + 1 and level + 1 ~= level then
        turn = level + 1 - TURN
    end
    firsts[no][level], lasts[no][level] = math.min(first or turn, turn), math.max(last or turn, turn)
    return turn
end
