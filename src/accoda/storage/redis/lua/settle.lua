-- Applies outcomes to the jobs whose leases are current, then enqueues the follow-ups of the accepted ones.
--
-- keys:      calls, ids, queues, outbox, then the base of each queue (those of leases first, then those of follow-ups)
-- arguments: now, call, forget, width, step, number, floor, names, count, posts, then outcomes, posts, follow-ups
--
-- An outcome is: "<queue><kind>", id, attempts, and by its kind
--   d          done, and nothing else to say
--   f          done: the number of waiters seen (or empty), result ('=' and bytes, or empty), number of follow-ups
--   r          retry: start ("+ms" or "@moment"), reason
--   b          bury: reason
--   p          bury, with follow-ups: reason, number of follow-ups
-- Follow-ups are those that are stored here, in the queues `names` (with commas): each is the arguments of a job (see
-- parts/add.lua). A post is those of one outcome for another shard: the outcome's place (from 1), a run, the sealed
-- jobs. Runs go to the outbox, to be moved on from there.
-- answer:    the refused outcomes as "place:l" (lost) or "place:g" (grown), with commas, counted from 0
-- uses:      time once leave bucket lease due
-- later:     record shelf notes kept ids aside moves locate add settle
local names, count, posts = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
local outcomes, at, follow_ups = {}, 11, 0
local wanted = {}
for n = 1, count do
  local queue, kind = match(ARGV[at], '^(%d+)(%a)$')
  local id = ARGV[at + 1]
  local outcome = {base = KEYS[4 + queue], kind = kind, id = id, attempts = ARGV[at + 2], at = at + 3, follow_ups = 0}
  outcomes[n] = outcome
  local ids = wanted[outcome.base]
  if not ids then
    ids = {}
    wanted[outcome.base] = ids
  end
  ids[#ids + 1] = id
  if kind == 'd' then
    at = at + 3
  elseif kind == 'f' then
    outcome.follow_ups = tonumber(ARGV[at + 5])
    follow_ups = follow_ups + outcome.follow_ups
    at = at + 6
  elseif kind == 'r' then
    at = at + 5
  elseif kind == 'b' then
    at = at + 4
  else
    outcome.follow_ups = tonumber(ARGV[at + 4])
    follow_ups = follow_ups + outcome.follow_ups
    at = at + 5
  end
end

local posted_at = at
at = at + 3 * posts

local earlier = once(follow_ups + posts > 0)
if earlier then
  return earlier
end

if posts > 0 then
  call('HLEN', KEYS[4]) -- a key of another type shows here, before anything is changed
end
local bases = names ~= '' and rest().bases_of(names)
local lines = {}
for base, ids in pairs(wanted) do
  local line = {held = {}, gone = {}, batches = {}, ends = {}, done = 0, retried = 0, buried = 0}
  local ok, values = attempt(values_of, base .. ':taken', ids) -- else all of this queue are lost, but not the others
  for n = 1, ok and #ids or 0 do
    line.held[ids[n]] = values[n]
  end
  lines[base] = line
end

-- Outcomes that do more than make a plain job go. Why it is refused; nil where it was applied.
local function change(outcome, base, line, value, batch)
  local _, rank, record = split_taken(value)
  local job = rest().parse(record)
  if not job then
    return 'l' -- it is set aside when the lease ends
  end
  rank = rest().good_number(rank) and rank or '0'
  if outcome.kind == 'f' then
    local seen = tonumber(ARGV[outcome.at])
    if seen and rest().waiters_of(base, job.id) > seen then
      return 'g'
    end
    rest().finish(base, job, rank, batch, ARGV[outcome.at + 1])
  elseif outcome.kind == 'd' then
    rest().finish(base, job, rank, batch, '')
  elseif outcome.kind == 'r' then
    rest().put_back(base, job, rank, batch, ARGV[outcome.at], ARGV[outcome.at + 1])
    line.retried = line.retried + 1
  else
    rest().bury(base, job, rank, batch, ARGV[outcome.at])
    line.buried = line.buried + 1
  end
end

-- Why an outcome is refused; nil where it was applied. Nothing is removed before the end of the script but from
-- `held`, so a second outcome for the same lease is lost.
local function apply(outcome, base, line)
  local value = line.held[outcome.id]
  if not value then
    return 'l'
  end
  local batch, flag, attempts = match(value, '^([^,]*),[^,]*,%d+(%a)(%d+)')
  if attempts ~= outcome.attempts then -- nil where it cannot be read
    return 'l'
  end
  local till = line.ends[batch]
  if not till then
    local ok, found = attempt(end_of, base, batch)
    till = ok and found or 0
    line.ends[batch] = till
  end
  if till <= now then
    return 'l'
  end
  if flag ~= 'p' or (outcome.kind ~= 'd' and outcome.kind ~= 'f') then
    local ok, why = attempt(change, outcome, base, line, value, batch)
    if not ok or why then
      return why == 'g' and why or 'l'
    end
  end
  if outcome.kind == 'd' or outcome.kind == 'f' then
    line.done = line.done + 1
  end
  line.held[outcome.id] = nil
  line.gone[#line.gone + 1] = outcome.id
  line.batches[batch] = (line.batches[batch] or 0) + 1
end

local refused = {}
for n = 1, count do
  local outcome = outcomes[n]
  outcome.why = apply(outcome, outcome.base, lines[outcome.base])
  if outcome.why then
    refused[#refused + 1] = (n - 1) .. ':' .. outcome.why
  end
end
local function close_line(base, line)
  many('HDEL', base .. ':taken', line.gone)
  for batch, number in pairs(line.batches) do
    release(base, batch, number)
  end
  for _, counter in ipairs({'done', 'retried', 'buried'}) do
    if line[counter] > 0 then
      add_to(base .. ':meta', counter, line[counter])
    end
  end
end
for base, line in pairs(lines) do
  attempt(close_line, base, line)
end

-- The arguments of the follow-ups whose outcome was applied, where they begin, and how many jobs they are. Mostly that is
-- all of them, and then they are not copied: a job may have a hundred thousand.
local function accepted_jobs()
  local jobs, number = {}, 0
  for n = 1, count do
    number = number + (outcomes[n].why and 0 or outcomes[n].follow_ups)
  end
  if number == follow_ups then
    return ARGV, at, number
  end
  for n = 1, number > 0 and count or 0 do
    for _ = 1, outcomes[n].follow_ups do
      local _, next_at = rest().read_job(ARGV, at)
      for each = at, outcomes[n].why and 0 or next_at - 1 do
        jobs[#jobs + 1] = ARGV[each]
      end
      at = next_at
    end
  end
  return jobs, 1, number
end

local function enqueue_here()
  local jobs, first, number = accepted_jobs()
  if number == 0 then
    return
  end
  rest().open_queues(KEYS[3], names)
  local step = tonumber(ARGV[5])
  local sequence, shard = rest().next_ids(KEYS[2], number, step, tonumber(ARGV[6]), tonumber(ARGV[7]), bases)
  rest().add_all(bases, jobs, first, number, sequence, step, shard)
end

local function post()
  local runs = {}
  for first = posted_at, posted_at + 3 * posts - 1, 3 do
    if not outcomes[tonumber(ARGV[first])].why then
      local sealed = runs[ARGV[first + 1]] or {}
      runs[ARGV[first + 1]] = sealed
      sealed[#sealed + 1] = ARGV[first + 2]
    end
  end
  for run, sealed in pairs(runs) do
    call('HSET', KEYS[4], run, rest().whole(now) .. ' ' .. table.concat(sealed))
  end
end

if posts > 0 then
  post()
end
if follow_ups > 0 then
  enqueue_here()
end
if #refused == 0 then
  return ''
end
return remember(table.concat(refused, ','))
