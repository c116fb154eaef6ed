-- Lanes: whom a job belongs to. What the rules of a queue mean is in accoda/storage/protocol.py, "Lanes".
--
--   <base>:lanes            hash: lane -> how many of its jobs are ready or taken, for each lane with ready, held or
--                           taken jobs
--   <base>:ready:of:<lane>  sorted set of its ready jobs in the order of the line: their turns, which order them there, as
--                           level and (in the member) rest, then id, then rank as `Lane.digits` gives it
--   <base>:turns            the same of the ready jobs of all lanes, so that the lowest turn of a level is found
--   <base>:held:of:<lane>   sorted set: id of a held job -> its rank
--
-- A job that becomes ready is noted with its lane. `Lane.balance` (balance.lua), with which each step ends, lets as many
-- into the line as the rules allow. Where a job is looked for before, those that are noted are held.
local Lane = {}
local floor = math.floor

-- A number as 16 digits that are in the order of the numbers.
local digits = {}
function Lane.digits(number)
  local text = digits[number]
  if not text then
    local high, low = struct.unpack('>I4I4', struct.pack('>d', number + 0)) -- + 0: there is one zero
    if high >= 0x80000000 then
      high, low = 0xffffffff - high, 0xffffffff - low
    else
      high = high + 0x80000000
    end
    text = format('%08x%08x', high, low)
    digits[number] = text
  end
  return text
end

-- What this step has to balance, by queue: `lanes` has of each lane the jobs that become ready, and how many of those
-- that were ready or taken are so no more; `noted` all jobs that become ready, in their order; `into` held jobs that come
-- into the line; `lowest` is for their turns.
local steps = {}
function Lane.step(base)
  local step = steps[base]
  if not step then
    step = {base = base, lanes = {}, noted = {}, into = {}, lowest = {}}
    steps[base] = step
  end
  return step
end

function Lane.touch(base, lane)
  local step = steps[base] or Lane.step(base)
  local touched = step.lanes[lane]
  if not touched then
    touched = {coming = {}, gone = 0}
    step.lanes[lane] = touched
  end
  return touched, step
end

-- A job becomes ready.
function Lane.come(base, lane, id, rank, cost, record)
  local touched, step = Lane.touch(base, lane)
  local job = {step = step, lane = lane, id = id, rank = rank, cost = cost, record = record}
  touched.coming[#touched.coming + 1] = job
  step.noted[#step.noted + 1] = job
end

-- A job no longer runs.
function Lane.end_run(base, lane)
  local touched = Lane.touch(base, lane)
  touched.gone = touched.gone + 1
end

-- What a lane, and the turns, have of a ready job: level and member. The level is kept apart from the rest of the turn,
-- because Redis reads the scores of a small sorted set again and again, which takes long for such fractions.
local level_texts = setmetatable({}, {__index = function(known, level)
  known[level] = format('%.17g', level)
  return known[level]
end})
function Lane.ready_entry(turn, id, rank)
  local level = floor(turn)
  return level_texts[level], struct.pack('>d', turn - level) .. id .. Lane.digits(rank)
end

-- Note a score and a member in the list of a lane.
function Lane.note(lists, lane, score, member)
  local list = lists[lane]
  if list then
    local size = #list
    list[size + 1], list[size + 2] = score, member
  else
    lists[lane] = {score, member}
  end
end

-- Add scores and members to a sorted set. For each of them Redis looks through all members of a small set, so one to which
-- many come is turned into a table, by a member that is longer than those of small sets may be.
local LONG, FEW = string.rep('0', 65), 16
function Lane.add(key, list)
  local are_many = #list > 2 * FEW
  if are_many then
    call('ZADD', key, '0', LONG)
  end
  many('ZADD', key, list)
  if are_many then
    call('ZREM', key, LONG)
  end
end

-- Add these lists to a sorted set of each lane.
function Lane.add_all(key, lists)
  for lane, list in pairs(lists) do
    Lane.add(key .. lane, list)
  end
end

-- Remove so many of the first members of the sorted set of each lane.
function Lane.shift(key, counts)
  for lane, count in pairs(counts) do
    call('ZREMRANGEBYRANK', key .. lane, '0', format('%d', count - 1))
  end
end

-- Ready jobs are taken, so many of each lane: the first of it, and together the first of all that have lanes. The lanes
-- stay balanced: each has so many jobs less in the line, and so many more that run.
function Lane.take(base, counts)
  local size = 0
  for _, count in pairs(counts) do
    size = size + count
  end
  if size > 0 then
    Lane.shift(base .. ':ready:of:', counts)
    call('ZREMRANGEBYRANK', base .. ':turns', '0', format('%d', size - 1))
  end
end

-- A ready job is about to leave the line otherwise; how many places that frees: one that could not be read has none.
function Lane.unindex(base, lane, id, rank)
  local turn = tonumber(Placed.score_of(base, 'ready', id) or nil)
  if not turn or not rank then
    return 0
  end
  local _, member = Lane.ready_entry(turn, id, rank)
  call('ZREM', base .. ':turns', member)
  return call('ZREM', base .. ':ready:of:' .. lane, member)
end

-- A job leaves the state ready (its place is not empty yet), held or taken.
function Lane.leave(base, state, lane, id, record)
  local touched = Lane.touch(base, lane)
  if state == 'taken' then
    touched.gone = touched.gone + 1
  elseif state == 'held' then
    call('ZREM', base .. ':held:of:' .. lane, id)
  else
    touched.gone = touched.gone + Lane.unindex(base, lane, id, (Record.rank_of(record)))
  end
end

-- Put jobs that are noted, or were held back, among those that are held.
function Lane.hold(base, jobs)
  local ids, scored, of_lanes = {}, {}, {}
  for n, job in ipairs(Lane.last_first(jobs)) do
    ids[n], scored[2 * n - 1], scored[2 * n] = job.id, job.rank, job.record
    Lane.note(of_lanes, job.lane, job.rank, job.id)
  end
  if #ids > 0 then
    Placed.add(base, 'held', ids, scored)
    Lane.add_all(base .. ':held:of:', of_lanes)
  end
end

-- The jobs of a queue that are noted are held, since one of them may be looked for.
function Lane.hold_noted(base)
  local step = steps[base]
  if step and #step.noted > 0 then
    Lane.hold(base, step.noted)
    step.noted, step.is_mixed = {}, true
    for _, touched in pairs(step.lanes) do
      touched.coming = {}
    end
  end
end

-- Jobs in the order of their ids, in which neighbours share a bucket of the index by id, the last one first: in a small
-- sorted set Redis looks for a place from the beginning. Most of them come in the order of their ids.
function Lane.last_first(jobs)
  local found, size, is_sorted = {}, #jobs, true
  for n = size, 1, -1 do
    found[size - n + 1] = jobs[n]
    is_sorted = is_sorted and (n == 1 or jobs[n - 1].id < jobs[n].id)
  end
  if not is_sorted then
    table.sort(found, function(one, other)
      return one.id > other.id
    end)
  end
  return found
end

-- Where a job is in the order of rank and id.
function Lane.place(job)
  job.place = job.place or Lane.digits(job.rank) .. job.id
  return job.place
end
