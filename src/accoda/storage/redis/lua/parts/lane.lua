-- Lanes: whom a job belongs to. What the rules of a queue mean is in accoda/storage/protocol.py, "Lanes".
--
--   <base>:meta             its field "lanes": the rules, "limit,fair,by_cost,total,own,shared"; own is 1 if lanes have
--                           their own
--   <base>:rules            hash: lane -> its own "limit,weight"; the limit is "-" if it is lifted, both are empty if not
--                           given
--   <base>:lanes            hash: lane -> how many of its jobs are ready or taken, for each lane with ready, held or
--                           taken jobs
--   <base>:ready:of:<lane>  sorted set of its ready jobs in the order of the line: their turns, which order them there, as
--                           level and (in the member) rest, then id, then rank as `Lane.digits` gives it
--   <base>:held:of:<lane>   sorted set: id of a held job -> its rank
--   <base>:turns            sorted set: id -> turn, of the ready jobs of all lanes, so that the lowest of a level is found
--   <root>:groups           hash: what queues share (`Lanes.shared`) -> their names, with commas
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

-- What the rules are, and the pause. Without rules, or where they cannot be read, all jobs come into the line, by their
-- ranks.
local rules_of = {}
function Lane.rules(base)
  local rules = rules_of[base]
  if not rules then
    local paused, text = unpack(call('HMGET', base .. ':meta', 'paused', 'lanes'))
    local limit, fair, by_cost, total, own, shared =
      match(text or '', '^(%d*),([01]),([01]),(%d*),([01]),([%w_.-]*)$')
    rules = {paused = paused, limit = tonumber(limit), is_fair = fair == '1', by_cost = by_cost == '1',
      total = tonumber(total), has_own = own == '1', shared = shared ~= '' and shared or nil}
    rules.has_limits = rules.limit or rules.has_own or rules.shared
    rules_of[base] = rules
  end
  return rules
end

-- They are about to change.
function Lane.forget_rules()
  rules_of = {}
end

-- The bases of the queues that share their limits with this one, itself included, in the order of their names.
function Lane.group(base)
  local rules = Lane.rules(base)
  if not rules.group then
    local group, root, has_it = {}, match(base, '^(.*):'), false
    local names = rules.shared and call('HGET', root .. ':groups', rules.shared) or ''
    for name in string.gmatch(names, '[^,]+') do
      local other = root .. ':' .. name
      if Lane.rules(other).shared == rules.shared then
        group[#group + 1], has_it = other, has_it or other == base
      end
    end
    rules.group = has_it and group or {base}
  end
  return rules.group
end

-- Whether the queue may give jobs: the end of its pause, empty if that has none (nil: it is not paused), and how many
-- jobs more may run (nil: as many as there are).
function Lane.gate(base)
  local rules = Lane.rules(base)
  local till, total = rules.paused, rules.total
  till = till and (till == '' or (#till <= 16 and (tonumber(till) or 0) > now)) and till or nil
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

-- One command for each lane of these jobs, with the one or two values that `values` gives for each.
function Lane.each(jobs, command, key, values)
  local lists = {}
  for _, job in ipairs(jobs) do
    local list = lists[job.lane]
    if not list then
      list = {}
      lists[job.lane] = list
    end
    local size, one, other = #list, values(job)
    list[size + 1], list[size + 2] = one, other
  end
  for lane, list in pairs(lists) do
    many(command, key .. lane, list)
  end
end

-- Ready jobs are taken, the first of each lane. The lanes stay balanced: each has so many jobs less in the line, and so
-- many more that run.
function Lane.take(base, jobs)
  local ids, counts = {}, {}
  for n, job in ipairs(jobs) do
    ids[n], counts[job.lane] = Lane.long(job.id), (counts[job.lane] or 0) + 1
  end
  for lane, count in pairs(counts) do
    call('ZREMRANGEBYRANK', base .. ':ready:of:' .. lane, '0', format('%d', count - 1))
  end
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
    Lane.each(jobs, 'ZADD', base .. ':held:of:', function(job)
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

-- Texts in the order of their bytes. Lua's own is by the locale of the server; if that is another, hexadecimal digits are
-- in it as well.
local IS_BY_BYTES = 'Z' < 'a' and 'a-b' < 'aa'
local hex = setmetatable({}, {__index = function(known, char)
  known[char] = format('%02x', string.byte(char))
  return known[char]
end})
function Lane.sort(texts)
  local of = {}
  for n, text in ipairs(IS_BY_BYTES and {} or texts) do
    texts[n] = string.gsub(text, '.', hex)
    of[texts[n]] = text
  end
  table.sort(texts)
  for n, code in ipairs(texts) do
    texts[n] = of[code] or code
  end
  return texts
end

-- Wake sleepers: something is ready. One that hears a number needs no look whether there is something to take, unless it
-- has looked since: see wakeups.py.
function Lane.wake(base, ids_key)
  local till, free = Lane.gate(base)
  call('PUBLISH', base .. ':wake', (till or free == 0 or not ids_key) and '' or call('HGET', ids_key, 'last'))
end
