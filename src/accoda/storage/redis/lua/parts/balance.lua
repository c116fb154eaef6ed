-- The lanes that a step has touched are balanced: of each, so many jobs are in the line as the rules of the queue allow.
local TURN, NEWCOMER = 2 ^ -40, 1 - 2 ^ -10 -- as in accoda/model.py

-- Jobs that come in, best first. They are mostly in that order.
function Lane.sort(jobs)
  for n = 2, #jobs do
    if jobs[n].place < jobs[n - 1].place then
      table.sort(jobs, function(one, other)
        return one.place < other.place
      end)
      return
    end
  end
end

-- The held jobs of a lane, best first, one with each call. One without a record is left over from damage.
function Lane.held_jobs(base, lane)
  local page, at, from, size = {}, 0, '[' .. lane .. '\0h', '1'
  local function next_job()
    at = at + 1
    if not page[at] then
      page = call('ZRANGEBYLEX', base .. ':lanes', from, '(' .. lane .. '\0i', 'LIMIT', '0', size)
      at, from, size = 1, '(' .. (page[#page] or ''), '100'
    end
    local member = page[at]
    local id = member and sub(member, -16)
    local record = id and Placed.find(base, 'held', id)
    if id and not record then
      call('ZREM', base .. ':lanes', member)
      return next_job()
    end
    return id and {lane = lane, id = id, place = sub(member, -32), record = record, member = member}
  end
  return next_job
end

-- The places of the ready jobs of a lane by rank and id, from the best to the worst, and the members that have them.
function Lane.ready_places(base, lane)
  local places, members = {}, {}
  for n, member in ipairs(call('ZRANGEBYLEX', base .. ':lanes', '[' .. lane .. '\0r', '(' .. lane .. '\0s')) do
    places[n] = sub(member, -32)
    members[places[n]] = member
  end
  table.sort(places)
  return places, members
end

-- Which jobs of a lane have to leave the line, and which come in, where `free` more may. The jobs of `coming` from `at`
-- on are to be held. Unless some were held before (`is_mixed`), no job that was held is better than a ready one.
function Lane.choose(step, coming, lane, free)
  local back, into, at, places, members = {}, {}, 1, nil, nil
  local function hold_worst(place) -- of the ready ones, if it is behind this place; whether it is
    if not places then
      places, members = Lane.ready_places(step.base, lane)
    end
    local worst = places[#places]
    if not worst or worst <= place then
      return false
    end
    places[#places], free = nil, free + 1
    back[#back + 1] = {lane = lane, id = sub(worst, -16), member = members[worst]}
    return true
  end
  while free < 0 and hold_worst('') do end
  local next_held = step.any_held and Lane.held_jobs(step.base, lane)
  local held = next_held and next_held()
  while held or coming[at] do
    local new = coming[at]
    local best = (not new or (held and held.place < new.place)) and held or new
    if free <= 0 and (best == held and not step.is_mixed or not hold_worst(best.place)) then
      break
    end
    into[#into + 1], free = best, free - 1
    if best == new then
      at = at + 1
    else
      held = (free > 0 or new or step.is_mixed) and next_held() or nil
    end
  end
  return back, into, at
end

-- The lowest turn of a level in the queue, and the highest of the lane; false where there is none. Jobs that come in with
-- this step are not stored yet: they are noted here.
function Lane.lowest(step, level)
  local lowest = step.lowest[level]
  if lowest == nil then
    local till = '(' .. format('%.17g', level + 1)
    local found = call('ZRANGEBYSCORE', step.base .. ':turns', format('%.17g', level), till, 'WITHSCORES', 'LIMIT', 0, 1)
    lowest = tonumber(found[2]) or false
    step.lowest[level] = lowest
  end
  return lowest
end

function Lane.highest(step, lane, level)
  local highest = step.highest[level]
  if highest == nil then
    local from, till = '(' .. lane .. '\0r' .. Lane.digits(level + 1), '[' .. lane .. '\0r' .. Lane.digits(level)
    local member = call('ZREVRANGEBYLEX', step.base .. ':lanes', from, till, 'LIMIT', '0', '1')[1]
    highest = member and Lane.number(sub(member, -48, -33)) or false
    step.highest[level] = highest
  end
  return highest
end

-- The turn of a job that comes into a fair line.
function Lane.turn(step, lane, rank, length)
  local level = math.floor(rank)
  local highest, lowest = Lane.highest(step, lane, level), Lane.lowest(step, level)
  local turn = highest and highest + length or (lowest or level) + length * NEWCOMER
  if turn >= level + 1 and level + 1 > level then
    turn = level + 1 - TURN
  end
  local its_level = math.floor(turn)
  if its_level ~= level then -- a level so high that its turns are rounded to the next
    highest, lowest = Lane.highest(step, lane, its_level), Lane.lowest(step, its_level)
  end
  if its_level + 1 > its_level then -- else it is of no level, so high is it
    step.highest[its_level] = highest and highest > turn and highest or turn
    step.lowest[its_level] = lowest and lowest < turn and lowest or turn
  end
  return turn
end

-- A job comes into the line: what it was noted with, or its record, if it was held, tells where. What cannot be read goes
-- to the head, where the next take finds it and its client buries it.
function Lane.let_in(step, job, weight)
  local rank, cost = job.rank, job.cost
  if job.member then
    rank, cost = Record.rank_of(job.record)
  end
  job.rank, job.turn = rank, rank or '-inf'
  if rank and step.rules.is_fair then
    local length = (step.rules.by_cost and tonumber(cost) or 1) / weight * TURN
    job.turn = format('%.17g', Lane.turn(step, job.lane, rank, length))
  end
  step.into[#step.into + 1] = job
end

-- Jobs of a lane leave the line and are held.
function Lane.hold_back(step, jobs)
  Lane.write(step) -- so that the turns of the jobs that stay can be read again
  local base, kept, ids, records, members = step.base, {}, {}, {}, {}
  for n, job in ipairs(jobs) do
    local record = Placed.find(base, 'ready', job.id)
    job.record, job.rank = record, record and Record.rank_of(record)
    ids[n], members[n] = job.id, job.member
    if job.rank then -- else the entry was left over from damage
      kept[#kept + 1], records[#records + 1] = job, record
    end
  end
  many('ZREM', base .. ':lanes', members)
  many('ZREM', base .. ':turns', ids)
  Lane.hold(base, kept)
  ids = {}
  for n, job in ipairs(kept) do
    ids[n] = job.id
  end
  Placed.remove(base, 'ready', ids, records)
  step.lowest, step.highest = {}, {}
end

-- Store what comes into the line. In its new place first, so that nothing is lost should a command fail.
function Lane.write(step)
  if #step.into == 0 then
    return
  end
  local base, scored, members, turns, gone, gone_ids = step.base, {}, {}, {}, {}, {}
  local ids, sorted = Lane.by_id(step.into)
  for n, job in ipairs(sorted) do
    scored[2 * n - 1], scored[2 * n] = job.turn, job.record
    if job.rank then
      members[#members + 1], members[#members + 2] = '0', Lane.ready_member(job.lane, job.turn, job.id, job.rank)
      turns[#turns + 1], turns[#turns + 2] = job.turn, job.id
    end
    if job.member then -- it was held
      gone[#gone + 1], gone_ids[#gone_ids + 1] = job.member, job.id
    end
  end
  step.wakes = step.wakes or call('ZCARD', base .. ':ready') == 0
  Placed.add(base, 'ready', ids, scored)
  many('ZADD', base .. ':lanes', members)
  many('ZADD', base .. ':turns', turns)
  Placed.remove(base, 'held', gone_ids)
  many('ZREM', base .. ':lanes', gone)
  step.into = {}
end

function Lane.balance_one(step, lane, own)
  local coming, limit, weight = step.lanes[lane], step.rules.limit, 1
  if own then
    local its_limit, its_weight = match(own, '^(%-?%d*),(.*)$')
    limit, weight = its_limit == '' and limit or tonumber(its_limit), tonumber(its_weight) or 1
  end
  Lane.sort(coming)
  local free = math.huge
  if limit then -- those in the line and those that run are neighbours
    free = limit - call('ZLEXCOUNT', step.base .. ':lanes', '[' .. lane .. '\0r', '(' .. lane .. '\0t')
  end
  local back, into, at = Lane.choose(step, coming, lane, free)
  step.highest = {}
  if #back > 0 then
    Lane.hold_back(step, back)
  end
  for _, job in ipairs(into) do
    Lane.let_in(step, job, weight)
  end
  for n = at, #coming do
    step.held[#step.held + 1] = coming[n]
  end
end

-- Texts in the order of their bytes. Lua's own goes by the locale of the server, but not for hexadecimal digits.
local hex = setmetatable({}, {__index = function(known, char)
  known[char] = format('%02x', string.byte(char))
  return known[char]
end})
function Lane.in_order(lanes)
  local codes, names = {}, {}
  for lane in pairs(lanes) do
    local code = string.gsub(lane, '.', hex)
    codes[#codes + 1], names[code] = code, lane
  end
  table.sort(codes)
  for n, code in ipairs(codes) do
    codes[n] = names[code]
  end
  return codes
end

-- The end of a step: of each lane that it touched, so many jobs are in the line as the rules allow. Sleepers are woken
-- if the line was empty: with the last sequence number, if `ids_key` has it, as in parts/add.lua. Whether there was
-- anything to do.
function Lane.balance(ids_key)
  local is_any = next(steps) ~= nil
  for base, step in pairs(steps) do
    steps[base] = nil
    many('ZREM', base .. ':lanes', step.ended)
    step.rules, step.lowest, step.any_held = Lane.rules(base), {}, call('ZCARD', base .. ':held') > 0
    step.into, step.held = {}, {}
    local lanes = Lane.in_order(step.lanes)
    local own = step.rules.has_own and values_of(base .. ':rules', lanes) or {}
    for n, lane in ipairs(lanes) do
      Lane.balance_one(step, lane, own[n])
    end
    Lane.hold(base, step.held)
    Lane.write(step)
    if step.wakes then
      Lane.wake(base, ids_key)
    end
  end
  return is_any
end
