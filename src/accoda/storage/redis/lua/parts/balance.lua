-- The lanes that a step has touched are balanced: of each, so many jobs are in the line as the rules allow, over all
-- queues of the group that share them. `sides` are the steps of these queues: mostly one.
local AT_ONCE = 1000 -- so many held jobs of a lane come in with one step at most, and so many are held back
Lane.moved = 0 -- jobs that came in or were held back so far

-- The held jobs of a lane in one queue, best first, one with each call. One without a record is left over from damage.
local function held_in(step, lane, size)
  local key, from, page, at = step.base .. ':held:of:' .. lane, 0, {}, 0
  local function next_job()
    at = at + 1
    if not page[at] then
      local found = call('ZRANGE', key, from, from + size - 1, 'WITHSCORES')
      local records, missing = Placed.held_records(step.base, found)
      page, at = {}, 1
      for n = 1, #found, 2 do
        local id, rank = found[n], found[n + 1]
        if records[id] then
          page[#page + 1] = {step = step, lane = lane, id = id, rank = rank, place = Lane.digits(rank) .. id,
            record = records[id], was_held = true}
        end
      end
      many('ZREM', key, missing)
      from, size = from + #page, 100
      if #page == 0 and #missing > 0 then
        return next_job()
      end
    end
    return page[at]
  end
  return next_job
end

-- The same of all queues.
function Lane.held_jobs(sides, lane, size)
  if #sides == 1 then
    return held_in(sides[1], lane, size)
  end
  local sources, heads = {}, {}
  for n, step in ipairs(sides) do
    sources[n] = step.any_held and held_in(step, lane, size) or nil
  end
  return function()
    local best
    for n, source in pairs(sources) do
      heads[n] = heads[n] or source()
      if not heads[n] then
        sources[n] = nil
      elseif not best or heads[n].place < heads[best].place then
        best = n
      end
    end
    local job = best and heads[best]
    heads[best or 0] = nil
    return job
  end
end

-- The places of the ready jobs of a lane by rank and id, from the best to the worst, and the steps of their queues.
function Lane.ready_places(sides, lane)
  local places, of = {}, {}
  for _, step in ipairs(sides) do
    for _, member in ipairs(call('ZRANGE', step.base .. ':ready:of:' .. lane, '0', '-1')) do
      local place = sub(member, -16) .. sub(member, 9, -17)
      places[#places + 1], of[place] = place, step
    end
  end
  table.sort(places)
  return places, of
end

-- Which jobs of a lane have to leave the line, and which come in, where `free` more may. Those of `coming`, best first,
-- that do not come in are to be held. Of one queue, no job that was held before is better than a ready one, unless some
-- of this step are held already (`is_mixed`).
function Lane.choose(sides, lane, coming, free)
  local back, into, at, from_held, places, of = {}, {}, 1, 0, nil, nil
  local function hold_worst(place) -- of the ready ones, if it is behind this place; whether it is
    if not places then
      places, of = Lane.ready_places(sides, lane)
    end
    local worst = places[#places]
    if not worst or worst <= place or #back == AT_ONCE then
      return false
    end
    places[#places], free = nil, free + 1
    back[#back + 1] = {step = of[worst], lane = lane, id = sub(worst, -16)}
    return true
  end
  while free < 0 and hold_worst('') do end
  local is_mixed = #sides > 1 or sides[1].is_mixed
  local next_held = Lane.held_jobs(sides, lane, math.max(1, math.min(free, 100)))
  local held = (free > 0 or is_mixed) and next_held()
  while held or coming[at] do
    local new = coming[at]
    local best = (not new or (held and held.place < new.place)) and held or new
    if (best == held and from_held == AT_ONCE) or (free <= 0 and not hold_worst(best.place)) then
      break
    end
    into[#into + 1], free = best, free - 1
    if best == new then
      at = at + 1
    else
      from_held = from_held + 1
      held = (free > 0 or new or is_mixed) and next_held()
    end
  end
  Lane.moved = Lane.moved + #back + from_held
  return back, into
end

-- A job comes into the line. What cannot be read goes to the head, where the next take finds it and its client buries it.
function Lane.let_in(job, n)
  local step, rank, cost = job.step, job.rank, job.cost
  if job.was_held then
    rank, cost = Record.rank_of(job.record)
  end
  job.rank, job.turn = rank, rank or '-inf'
  if rank then
    step.counts[n] = step.counts[n] + 1
    if step.rules.is_fair then
      local length = step.rules.by_cost and tonumber(cost) or 1
      job.turn = format('%.17g', Turn.of(step, job.lane, rank, length / step.weight * TURN))
    end
  end
  step.into[#step.into + 1] = job
end

-- Jobs of a lane leave the line and are held. What the index has without a record is left over from damage, and stays.
function Lane.hold_back(step, jobs, n)
  Lane.write(step) -- so that the turns of the jobs that stay can be read again
  step.lowest, step.highest = {}, {}
  local base, kept, ids, records = step.base, {}, {}, {}
  for _, job in ipairs(jobs) do
    local record = Placed.find(base, 'ready', job.id)
    job.record, job.rank = record, record and Record.rank_of(record)
    if job.rank then
      step.counts[n] = step.counts[n] - Lane.unindex(base, job.lane, job.id, job.rank)
      kept[#kept + 1], ids[#ids + 1], records[#records + 1] = job, job.id, record
    end
  end
  Lane.hold(base, kept)
  Placed.remove(base, 'ready', ids, records)
end

-- Store what comes into the line. In its new place first, so that nothing is lost should a command fail.
function Lane.write(step)
  if #step.into == 0 then
    return
  end
  local base, scored, turns, indexed, gone, gone_ids = step.base, {}, {}, {}, {}, {}
  local ids, sorted = Lane.by_id(step.into)
  for n, job in ipairs(sorted) do
    scored[2 * n - 1], scored[2 * n] = job.turn, job.record
    if job.rank then
      turns[#turns + 1], turns[#turns + 2] = job.turn, Lane.long(job.id)
      indexed[#indexed + 1] = job
    end
    if job.was_held then
      gone[#gone + 1], gone_ids[#gone_ids + 1] = job, job.id
    end
  end
  step.wakes = step.wakes or call('ZCARD', base .. ':ready') == 0
  Placed.add(base, 'ready', ids, scored)
  Lane.each(indexed, 'ZADD', base .. ':ready:of:', function(job)
    return Lane.ready_entry(job.turn, job.id, job.rank)
  end)
  many('ZADD', base .. ':turns', turns)
  Placed.remove(base, 'held', gone_ids)
  Lane.each(gone, 'ZREM', base .. ':held:of:', function(job)
    return job.id
  end)
  step.into = {}
end

-- How many jobs more of the n-th lane may come into the line: the lowest limit that a queue gives it, without those that
-- are there and those that run. Negative: so many too many are.
function Lane.room(sides, n, lane)
  local limit, count = math.huge, 0
  for _, step in ipairs(sides) do
    local touched, own, its_limit = step.lanes[lane], step.own[n], step.rules.limit
    step.weight, step.highest = 1, {}
    if own then
      local given, weight = match(own, '^(%-?%d*),(.*)$')
      its_limit = given == '' and its_limit or tonumber(given)
      step.weight = tonumber(weight) or 1
    end
    step.counts[n] = math.max(0, (tonumber(step.counts[n]) or 0) - (touched and touched.gone or 0))
    limit, count = math.min(limit, its_limit or math.huge), count + step.counts[n]
  end
  return limit - count
end

-- The jobs of a lane that become ready, best first. They are mostly in that order.
function Lane.coming(sides, lane)
  local jobs = sides[1].lanes[lane] and sides[1].lanes[lane].coming or {}
  for n = 2, #sides do
    for _, job in ipairs(sides[n].lanes[lane] and sides[n].lanes[lane].coming or {}) do
      jobs[#jobs + 1] = job
    end
  end
  for n = 2, #jobs do
    if jobs[n].place < jobs[n - 1].place then
      table.sort(jobs, function(one, other)
        return one.place < other.place
      end)
      break
    end
  end
  return jobs
end

function Lane.balance_one(sides, n, lane, any_held)
  local free, into, back = Lane.room(sides, n, lane), Lane.coming(sides, lane), {}
  if free < #into or (any_held and (free > 0 or #sides > 1 or sides[1].is_mixed)) then
    back, into = Lane.choose(sides, lane, into, free)
  end
  for _, step in ipairs(#back > 0 and sides or {}) do
    local its_own = {}
    for _, job in ipairs(back) do
      its_own[#its_own + 1] = job.step == step and job or nil
    end
    Lane.hold_back(step, its_own, n)
  end
  for _, job in ipairs(into) do
    Lane.let_in(job, n)
  end
end

-- Store what has become of the lanes in one queue, and wake sleepers if its line was empty: with the last sequence
-- number, if `ids_key` has it, as in parts/add.lua.
function Lane.finish(step, lanes, ids_key)
  local base, held, counts, gone = step.base, {}, {}, {}
  for _, job in ipairs(step.noted) do
    held[#held + 1] = not job.turn and job or nil
  end
  Lane.hold(base, held)
  Lane.write(step)
  local any_held = call('ZCARD', base .. ':held') > 0
  for n, lane in ipairs(lanes) do
    if step.counts[n] > 0 or any_held and call('EXISTS', base .. ':held:of:' .. lane) == 1 then
      counts[#counts + 1], counts[#counts + 2] = lane, format('%d', step.counts[n])
    else
      gone[#gone + 1] = lane
    end
  end
  many('HSET', base .. ':lanes', counts)
  many('HDEL', base .. ':lanes', gone)
  if step.wakes then
    Lane.wake(base, ids_key)
  end
end

-- The steps of the queues of a group, and the lanes that they have touched, in the order of their names if any job may
-- come in. Whether any is held.
function Lane.sides(base)
  local sides, lanes, any_held, is_known = {}, {}, false, {}
  for n, each in ipairs(Lane.group(base)) do
    local step = Lane.step(each)
    sides[n], step.any_held = step, call('ZCARD', each .. ':held') > 0
    any_held = any_held or step.any_held
    for lane in pairs(step.lanes) do
      lanes[#lanes + 1], is_known[lane] = not is_known[lane] and lane or nil, true
    end
  end
  Lane.sort(lanes)
  for _, step in ipairs(sides) do
    step.rules, step.counts = Lane.rules(step.base), values_of(step.base .. ':lanes', lanes)
    step.own = step.rules.has_own and values_of(step.base .. ':rules', lanes) or {}
  end
  return sides, lanes, any_held
end

-- The end of a step. Whether there was anything to do.
function Lane.balance(ids_key)
  local base = next(steps)
  local is_any = base ~= nil
  while base do
    local sides, lanes, any_held = Lane.sides(base)
    for n, lane in ipairs(lanes) do
      Lane.balance_one(sides, n, lane, any_held)
    end
    for _, step in ipairs(sides) do
      Lane.finish(step, lanes, ids_key)
      steps[step.base] = nil
    end
    base = next(steps)
  end
  return is_any
end

-- Whether one of these ready jobs, which a take would get, is of a lane that has more jobs in the line and running than
-- its limit. That is so only until `set_lanes` has come to the end of the lane. Then the lanes are to be balanced.
function Lane.is_over(base, jobs)
  if not Lane.rules(base).has_limits or #jobs == 0 then
    return false
  end
  for _, job in ipairs(jobs) do
    Lane.touch(base, job.lane)
  end
  local sides, lanes = Lane.sides(base)
  for n, lane in ipairs(lanes) do
    if Lane.room(sides, n, lane) < 0 then
      return true
    end
  end
  for _, step in ipairs(sides) do
    steps[step.base] = nil
  end
  return false
end

-- Balance lanes of some queues, until many jobs have moved; how many of the lanes are balanced.
function Lane.balance_some(bases, lanes)
  for n, lane in ipairs(lanes) do
    for _, base in ipairs(bases) do
      Lane.touch(base, lane)
    end
    Lane.balance()
    if Lane.moved >= AT_ONCE then
      return n - 1
    end
  end
  return #lanes
end
