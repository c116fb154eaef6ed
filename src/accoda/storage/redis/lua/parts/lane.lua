-- Lanes: whom a job belongs to. What the rules of a queue mean is in accoda/storage/protocol.py, "Lanes".
--
--   <base>:meta     its field "lanes": the rules, "limit,fair,by_cost,total,own"; own is 1 if lanes have their own
--   <base>:rules    hash: lane -> its own "limit,weight"; the limit is "-" if it is lifted, both are empty if not given
--   <base>:lanes    sorted set of the jobs of lanes, in the order of its members (all scores are 0):
--                     lane NUL h rank id         held
--                     lane NUL r turn rank id    ready; turn is what orders it in the line
--                     lane NUL s id              taken, while the rules have limits
--                   where turn and rank are as `Lane.digits` gives them
--   <base>:turns    sorted set: id -> turn, of the same ready jobs, so that the lowest of a level is found
--
-- A job that becomes ready is noted with its lane. `Lane.balance` (balance.lua), with which each step ends, lets as many
-- into the line as the rules allow. Where a job is looked for before, those that are noted are held.
local Lane = {}

-- A number as 16 digits that are in the order of the numbers, and back.
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

function Lane.number(text)
  local high, low = tonumber(sub(text, 1, 8), 16), tonumber(sub(text, 9), 16)
  if high >= 0x80000000 then
    high = high - 0x80000000
  else
    high, low = 0xffffffff - high, 0xffffffff - low
  end
  return (struct.unpack('>d', struct.pack('>I4I4', high, low)))
end

-- What the rules are. Without rules, or where they cannot be read, all jobs come into the line, by their ranks.
local rules_of = {}
function Lane.rules(base)
  local rules = rules_of[base]
  if not rules then
    local text = call('HGET', base .. ':meta', 'lanes') or ''
    local limit, fair, by_cost, total, own = match(text, '^(%d*),([01]),([01]),(%d*),([01])$')
    rules = {limit = tonumber(limit), is_fair = fair == '1', by_cost = by_cost == '1', total = tonumber(total),
      has_own = own == '1'}
    rules.has_limits = rules.limit or rules.has_own
    rules_of[base] = rules
  end
  return rules
end

-- Whether the queue may give jobs: the end of its pause, empty if that has none (nil: it is not paused), and how many
-- jobs more may run (nil: as many as there are).
function Lane.gate(base)
  local till, rules = unpack(call('HMGET', base .. ':meta', 'paused', 'lanes'))
  till = till and (till == '' or (#till <= 16 and (tonumber(till) or 0) > now)) and till or nil
  local total = rules and Lane.rules(base).total
  return till, total and math.max(0, total - call('HLEN', base .. ':taken')) or nil
end

-- So many jobs of the queue no longer run: those that wait because `total` of them did may look again.
function Lane.ended(base, count)
  local total = Lane.rules(base).total
  local left = total and call('HLEN', base .. ':taken')
  if total and left < total and left + count >= total then
    call('PUBLISH', base .. ':wake', '')
  end
end

-- What this step has to balance, by queue: its lanes, each with the jobs that became ready; the members of jobs that no
-- longer run; whether a held job may be better than one in the line.
local steps = {}
function Lane.touch(base, lane)
  local step = steps[base]
  if not step then
    step = {base = base, lanes = {}, ended = {}}
    steps[base] = step
  end
  local coming = step.lanes[lane]
  if not coming then
    coming = {}
    step.lanes[lane] = coming
  end
  return coming, step
end

-- A job becomes ready.
function Lane.come(base, lane, id, rank, cost, record)
  local coming = Lane.touch(base, lane)
  coming[#coming + 1] = {lane = lane, id = id, rank = rank, cost = cost, record = record,
    place = Lane.digits(rank) .. id, turn = rank}
end

-- A job no longer runs.
function Lane.end_run(base, lane, id)
  if Lane.rules(base).has_limits then
    local _, step = Lane.touch(base, lane)
    step.ended[#step.ended + 1] = Lane.taken_member(lane, id)
  end
end

function Lane.taken_member(lane, id)
  return lane .. '\0s' .. id
end

function Lane.held_member(lane, rank, id)
  return lane .. '\0h' .. Lane.digits(rank) .. id
end

function Lane.ready_member(lane, turn, id, rank)
  return lane .. '\0r' .. Lane.digits(turn) .. Lane.digits(rank) .. id
end

-- Take ready jobs out of the index. One without a turn is not in it.
function Lane.unindex(base, lanes, ids, ranks)
  local members = {}
  for n, turn in ipairs(values_of(base .. ':turns', ids, 'ZMSCORE')) do
    if turn then
      members[#members + 1] = Lane.ready_member(lanes[n], turn, ids[n], ranks[n])
    end
  end
  many('ZREM', base .. ':lanes', members)
  many('ZREM', base .. ':turns', ids)
end

-- Ready jobs are taken. Their lanes stay balanced: each has one job less in the line, and one more that runs.
function Lane.take(base, lanes, ids, ranks)
  if #ids == 0 then
    return
  end
  Lane.unindex(base, lanes, ids, ranks)
  if Lane.rules(base).has_limits then
    local members = {}
    for n, id in ipairs(ids) do
      members[2 * n - 1], members[2 * n] = '0', Lane.taken_member(lanes[n], id)
    end
    many('ZADD', base .. ':lanes', members)
  end
end

-- Note which jobs of lanes are taken, if the rules have limits: they may have been taken under others.
function Lane.note_taken(base)
  local members = {}
  for _, value in ipairs(call('HVALS', base .. ':taken')) do
    local _, record = Lease.split(value)
    local id, _, _, lane = Record.head_of(record or '')
    if (lane or '') ~= '' then
      members[#members + 1], members[#members + 2] = '0', Lane.taken_member(lane, id)
    end
  end
  if Lane.rules(base).has_limits then
    many('ZADD', base .. ':lanes', members)
  else
    many('ZREM', base .. ':lanes', members) -- "0" is none
  end
end

-- A job leaves the state ready, held or taken.
function Lane.leave(base, state, lane, id, record)
  if state == 'taken' then
    Lane.end_run(base, lane, id)
    return
  end
  local rank = Record.rank_of(record)
  Lane.touch(base, lane)
  if rank and state == 'held' then
    call('ZREM', base .. ':lanes', Lane.held_member(lane, rank, id))
  elseif rank then
    Lane.unindex(base, {lane}, {id}, {rank})
  end
end

-- Ids and jobs in the order of the ids, in which neighbours share a bucket of the index by id.
function Lane.by_id(jobs)
  local ids, by_id, sorted = {}, {}, {}
  for n, job in ipairs(jobs) do
    ids[n], by_id[job.id] = job.id, job
  end
  table.sort(ids)
  for n, id in ipairs(ids) do
    sorted[n] = by_id[id]
  end
  return ids, sorted
end

-- Put jobs that are noted, or were held back, among those that are held.
function Lane.hold(base, jobs)
  local ids, sorted = Lane.by_id(jobs)
  local scored, members = {}, {}
  for n, job in ipairs(sorted) do
    scored[2 * n - 1], scored[2 * n] = job.rank, job.record
    members[2 * n - 1], members[2 * n] = '0', Lane.held_member(job.lane, job.rank, job.id)
  end
  if #ids > 0 then
    Placed.add(base, 'held', ids, scored)
    many('ZADD', base .. ':lanes', members)
  end
end

-- The jobs of a queue that are noted are held, since one of them may be looked for.
function Lane.hold_noted(base)
  local step = steps[base]
  for lane, coming in pairs(step and step.lanes or {}) do
    if #coming > 0 then
      Lane.hold(base, coming)
      step.lanes[lane], step.is_mixed = {}, true
    end
  end
end

-- Wake sleepers: something is ready. One that hears a number needs no look whether there is something to take, unless it
-- has looked since: see wakeups.py.
function Lane.wake(base, ids_key)
  local till, free = Lane.gate(base)
  call('PUBLISH', base .. ':wake', (till or free == 0 or not ids_key) and '' or call('HGET', ids_key, 'last'))
end
