-- How jobs of lanes come into the line of a queue and leave it, in the steps that balance their lanes.

-- A job comes into the line.
function Lane.let_in(job, n)
  local step, turn = job.step, tonumber(job.rank)
  if step.rules.is_fair then
    local cost = step.rules.by_cost and (job.cost or select(2, Record.rank_of(job.record)))
    turn = Turn.of(step, job.lane, turn, (tonumber(cost) or 1) / step.weight * TURN)
  end
  job.turn, step.counts[n] = turn, step.counts[n] + 1
  if job.was_held then
    step.into[#step.into + 1] = job
  end
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

-- Store what comes into the line. In its new place first, so that nothing is lost should a command fail. Those that were
-- held are the first of their lanes.
function Lane.write(step)
  local base, is_fair, jobs, noted = step.base, step.rules.is_fair, {}, {}
  for _, job in ipairs(step.noted) do
    local list = job.turn and jobs or noted
    list[#list + 1] = job
  end
  for _, job in ipairs(step.into) do
    jobs[#jobs + 1] = job
  end
  step.noted, step.into = noted, {}
  if #jobs == 0 then
    return
  end
  local ids, scored, turns, of_lanes, gone, counts = {}, {}, {}, {}, {}, {}
  for n, job in ipairs(Lane.last_first(jobs)) do
    local id, lane, turn = job.id, job.lane, job.turn
    local level, member = Lane.ready_entry(turn, id, job.rank)
    ids[n], scored[2 * n - 1], scored[2 * n] = id, is_fair and format('%.17g', turn) or job.rank, job.record
    turns[2 * n - 1], turns[2 * n] = level, member
    Lane.note(of_lanes, lane, level, member)
    if job.was_held then
      gone[#gone + 1], counts[lane] = id, (counts[lane] or 0) + 1
    end
  end
  step.wakes = step.wakes or call('ZCARD', base .. ':ready') == 0
  Placed.add(base, 'ready', ids, scored)
  Lane.add_all(base .. ':ready:of:', of_lanes)
  Lane.add(base .. ':turns', turns)
  Placed.remove(base, 'held', gone)
  Lane.shift(base .. ':held:of:', counts)
end
