-- Lanes: whom a job belongs to. What the rules of a queue mean is in accoda/storage/protocol.py, "Lanes".
--
--   <base>:lanes            hash: lane -> how many of its jobs are ready or taken, for each lane with ready, held or
--                           taken jobs
--   <base>:ready:of:<lane>  sorted set of its ready jobs in the order of the line: their turns, which order them there, as
--                           level and (in the member) rest, then id, then rank as `Lane.digits` gives it
--   <base>:held:of:<lane>   sorted set: id of a held job -> its rank
--   <base>:turns            sorted set: id -> turn, of the ready jobs of all lanes, so that the lowest of a level is found
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
-- that were ready or taken are so no more; `noted` all jobs that become ready, in their order; `into` those that come into
-- the line; `lowest` is for their turns.
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
  local job = {step = step, lane = lane, id = id, rank = rank, cost = cost, record = record,
    place = Lane.digits(rank) .. id}
  touched.coming[#touched.coming + 1] = job
  step.noted[#step.noted + 1] = job
end

-- A job no longer runs.
function Lane.end_run(base, lane)
  local touched = Lane.touch(base, lane)
  touched.gone = touched.gone + 1
end

-- What a lane has of a ready job: level and member. The level is kept apart from the rest of the turn, because Redis reads
-- the scores of a small sorted set again and again, which takes long for such fractions.
local level_texts = {}
function Lane.ready_entry(turn, id, rank)
  local level = floor(turn)
  local text = level_texts[level]
  if not text then
    text = format('%.17g', level)
    level_texts[level] = text
  end
  return text, struct.pack('>d', turn - level) .. id .. Lane.digits(rank)
end

-- An id as a member of the turns: so long that Redis makes a table of them, however few they are, for the same reason.
local LONG = string.rep('0', 49)
function Lane.long(id)
  return LONG .. id
end

-- Add jobs to a sorted set of each lane; `entry` gives the score and the member. The last job first: in a small sorted set
-- Redis looks for its place from the beginning.
function Lane.add(key, jobs, entry)
  local lists = {}
  for n = #jobs, 1, -1 do
    local job = jobs[n]
    local list = lists[job.lane]
    if not list then
      list = {}
      lists[job.lane] = list
    end
    list[#list + 1], list[#list + 2] = entry(job)
  end
  for lane, list in pairs(lists) do
    many('ZADD', key .. lane, list)
  end
end

-- Remove so many of the first members of the sorted set of each lane.
function Lane.shift(key, counts)
  for lane, count in pairs(counts) do
    call('ZREMRANGEBYRANK', key .. lane, '0', format('%d', count - 1))
  end
end

-- Ready jobs are taken, the first of each lane. The lanes stay balanced: each has so many jobs less in the line, and so
-- many more that run.
function Lane.take(base, jobs)
  local ids, counts = {}, {}
  for n, job in ipairs(jobs) do
    ids[n], counts[job.lane] = Lane.long(job.id), (counts[job.lane] or 0) + 1
  end
  Lane.shift(base .. ':ready:of:', counts)
  many('ZREM', base .. ':turns', ids)
end

-- A ready job leaves the line otherwise; how many places that frees: one that could not be read has none.
function Lane.unindex(base, lane, id, rank)
  local turn = call('ZSCORE', base .. ':turns', Lane.long(id))
  if not turn or not rank then
    return 0
  end
  call('ZREM', base .. ':turns', Lane.long(id))
  return call('ZREM', base .. ':ready:of:' .. lane, (select(2, Lane.ready_entry(turn, id, rank))))
end

-- A job leaves the state ready, held or taken.
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
  local ids, sorted = Lane.by_id(jobs)
  local scored = {}
  for n, job in ipairs(sorted) do
    scored[2 * n - 1], scored[2 * n] = job.rank, job.record
  end
  if #ids > 0 then
    Placed.add(base, 'held', ids, scored)
    Lane.add(base .. ':held:of:', jobs, function(job)
      return job.rank, job.id
    end)
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

-- Ids and jobs in the order of the ids, in which neighbours share a bucket of the index by id. Most are in it already.
function Lane.by_id(jobs)
  local ids, is_sorted = {}, true
  for n, job in ipairs(jobs) do
    ids[n] = job.id
    is_sorted = is_sorted and (n == 1 or ids[n - 1] < job.id)
  end
  if is_sorted then
    return ids, jobs
  end
  local by_id, sorted = {}, {}
  for _, job in ipairs(jobs) do
    by_id[job.id] = job
  end
  table.sort(ids)
  for n, id in ipairs(ids) do
    sorted[n] = by_id[id]
  end
  return ids, sorted
end
