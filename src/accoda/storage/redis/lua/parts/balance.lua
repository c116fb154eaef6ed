-- The lanes that a step has touched are balanced: of each, so many jobs are in the line as the rules allow, over all
-- queues of the group that share them. `sides` are the steps of these queues: mostly one.

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
    Rules.wake(base, ids_key)
  end
end

-- The steps of the queues of a group, and the lanes that they have touched, in the order of their names if any job may
-- come in. Whether any is held.
function Lane.sides(base)
  local sides, lanes, any_held, is_known = {}, {}, false, {}
  for n, each in ipairs(Rules.group(base)) do
    local step = Lane.step(each)
    sides[n], step.any_held = step, call('ZCARD', each .. ':held') > 0
    any_held = any_held or step.any_held
    for lane in pairs(step.lanes) do
      lanes[#lanes + 1], is_known[lane] = not is_known[lane] and lane or nil, true
    end
  end
  Rules.sort(lanes)
  for _, step in ipairs(sides) do
    step.rules, step.counts = Rules.of(step.base), values_of(step.base .. ':lanes', lanes)
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

-- A lane is balanced whose limit is a new one.
function Lane.touch_mixed(base, lane)
  local _, step = Lane.touch(base, lane)
  step.is_mixed = true
end

-- Balance lanes of some queues, until many jobs have moved; how many of the lanes are balanced.
function Lane.balance_some(bases, lanes)
  for n, lane in ipairs(lanes) do
    for _, base in ipairs(bases) do
      Lane.touch_mixed(base, lane)
    end
    Lane.balance()
    if Lane.moved >= AT_ONCE then
      return n - 1
    end
  end
  return #lanes
end
