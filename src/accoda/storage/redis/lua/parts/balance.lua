-- The lanes that a step has touched are balanced: of each, so many jobs are in the line as the rules allow, over all
-- queues of the group that share them. `sides` are the steps of these queues: mostly one.

-- How many jobs more of the n-th lane may come into the line: the lowest limit that a queue gives it, without those that
-- are there and those that run. Negative: so many too many are.
function Lane.room(sides, n)
  local limit, count = math.huge, 0
  for _, step in ipairs(sides) do
    local own, its_limit = step.own[n], step.rules.limit
    step.weight, step.highest, step.has_stored = 1, {}, step.counts[n] > 0
    if own then
      local given, weight = match(own, '^(%-?%d*),(.*)$')
      its_limit = given == '' and its_limit or tonumber(given)
      step.weight = tonumber(weight) or 1
    end
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
    if Lane.place(jobs[n]) < Lane.place(jobs[n - 1]) then
      table.sort(jobs, function(one, other)
        return Lane.place(one) < Lane.place(other)
      end)
      break
    end
  end
  return jobs
end

function Lane.balance_one(sides, n, lane, any_held)
  local free, into = Lane.room(sides, n), Lane.coming(sides, lane)
  if free < #into or (any_held and (free > 0 or #sides > 1 or sides[1].is_mixed)) then
    local back
    back, into = Lane.choose(sides, lane, into, free)
    for _, step in ipairs(#back > 0 and sides or {}) do
      local its_own = {}
      for _, job in ipairs(back) do
        its_own[#its_own + 1] = job.step == step and job or nil
      end
      Lane.hold_back(step, its_own, n)
    end
  end
  for _, job in ipairs(into) do
    Lane.let_in(job, n)
  end
end

-- Store what has become of the lanes in one queue, and wake sleepers if its line was empty: with the last sequence
-- number, if `ids_key` has it, as in parts/add.lua.
function Lane.finish(step, lanes, ids_key)
  local base, counts, gone = step.base, {}, {}
  Lane.write(step)
  Lane.hold(base, step.noted)
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

-- The steps of the queues of a group, and the lanes that they have touched. Whether any job is held; and whether any
-- may come in or be held back: then the lanes are in the order of their names.
function Lane.sides(base)
  local sides, lanes, any_held, may_move, is_known = {}, {}, false, false, {}
  for n, each in ipairs(Rules.group(base)) do
    local step = Lane.step(each)
    step.rules, step.any_held = Rules.of(each), call('ZCARD', each .. ':held') > 0
    sides[n], any_held = step, any_held or step.any_held
    may_move = may_move or any_held or #step.noted > 0 or step.is_mixed or step.rules.is_unbalanced
    for lane in pairs(step.lanes) do
      lanes[#lanes + 1], is_known[lane] = not is_known[lane] and lane or nil, true
    end
  end
  if may_move then
    Rules.sort(lanes)
  end
  for _, step in ipairs(sides) do
    local counts = values_of(step.base .. ':lanes', lanes)
    for n, lane in ipairs(lanes) do
      local touched = step.lanes[lane]
      counts[n] = math.max(0, (tonumber(counts[n]) or 0) - (touched and touched.gone or 0))
    end
    step.counts, step.own = counts, may_move and step.rules.has_own and values_of(step.base .. ':rules', lanes) or {}
  end
  return sides, lanes, any_held, may_move
end

-- The end of a step. Whether there was anything to do.
function Lane.balance(ids_key)
  local base = next(steps)
  local is_any = base ~= nil
  while base do
    local sides, lanes, any_held, may_move = Lane.sides(base)
    for n, lane in ipairs(may_move and lanes or {}) do
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
