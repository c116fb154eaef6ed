-- Applies outcomes to the jobs whose leases are current, then enqueues the follow-ups of the accepted ones and reports.
--
-- keys:      calls, ids, queues, outbox, then the base of each queue (those of leases first, then those of follow-ups)
-- arguments: now, call, forget, width, step, number, floor, run, names, count, posts, then outcomes, posts, follow-ups
--
-- Outcomes are runs of neighbours with the same queue, kind and attempts: "<queue><kind><attempts>", their leases in one
-- text as ",taken_at:ids" and so on, a moment for all neighbours that were taken at it, then for each, by the kind
--   d  done, and nothing else to say
--   f  done: the number of waiters seen (or empty), result ('=' and bytes, or empty), runs of follow-ups
--   r  retry: start ("+ms" or "@moment"), reason, rank (or empty: the old one), 1 if it counts as a try, runs of
--      follow-ups
--   b  bury: reason, runs of follow-ups
-- Follow-ups are those that are stored here, in the queues `names` (with commas): runs of jobs (see parts/add.lua),
-- those of each outcome together. A post is those of one outcome for another shard: the outcome's place (from 1), the
-- name of a run, 1 if the outcome's report leaves with it, the sealed jobs. They go to the outbox, and are moved on
-- from there. `run` is that of the other reports, see parts/report.lua.
-- answer:    the refused outcomes as "place:l" (lost), "place:g" (grown) or "place:c" (cancelled), with commas, counted
--            from 0; if reports went to the outbox, ";" and the names of their runs, with commas
-- uses:      server once record placed lease rules lane turn choose line balance due job add report
local count, posts, at = tonumber(ARGV[10]), tonumber(ARGV[11]), 12
local EXTRA = {d = 0, f = 3, r = 5, b = 2} -- arguments of an outcome beside its id

-- The ids of leases, and the moments of their takes.
local function leases_in(text)
  local ids, moments, n = {}, {}, 0
  for taken_at, joined in string.gmatch(text, '(%d+):(%d+)') do
    for from = 1, #joined, 16 do
      n = n + 1
      ids[n], moments[n] = sub(joined, from, from + 15), taken_at
    end
  end
  return ids, moments
end

-- The runs of outcomes, and for the places of those that have some, how many runs of follow-ups.
local outcomes, follow_ups, any_follow_ups, place = {}, {}, false, 0
while place < count do
  local queue, kind, attempts = match(ARGV[at], '^(%d+)(%a)(%d+)$')
  local ids, moments = leases_in(ARGV[at + 1])
  at = at + 2
  local run = {base = KEYS[4 + queue], kind = kind, attempts = attempts, ids = ids, moments = moments, at = at,
    place = place}
  outcomes[#outcomes + 1] = run
  for n = place + 1, place + (EXTRA[kind] > 0 and #ids or 0) do
    at = at + EXTRA[kind]
    follow_ups[n] = tonumber(ARGV[at - 1])
    any_follow_ups = any_follow_ups or follow_ups[n] > 0
  end
  place = place + #ids
end
local posted_at = at
at = at + 4 * posts

local earlier = once(any_follow_ups or posts > 0)
if earlier then
  return earlier
end

-- Done, and there is more about the job than its record: a key, or it is kept. Why it is refused; nil where it is done.
local function end_kept(base, job, seen, result, place)
  if seen and Job.waiters_of(base, job.id) > seen then
    return 'g'
  end
  Report.note('done', job, result, place)
  Job.free_key(base, job)
  if job.keep == '' then
    call('DEL', base .. ':waiters:' .. job.id)
    return
  end
  if result ~= '' then
    job.size, job.data = format('%d', #result - 1), sub(result, 2) .. job.data
  end
  Job.keep(base, 'done', job)
end

local function retry(base, job, from)
  Record.give_back(job, Record.start_of(ARGV[from]))
  job.reason = '=' .. ARGV[from + 1]
  if ARGV[from + 2] ~= '' then
    job.rank = ARGV[from + 2]
  end
  if ARGV[from + 3] == '1' then
    job.tries = Record.plus_one(job.tries)
  end
  Job.line_up(base, job)
end

local function bury(base, job, reason, place)
  Report.note('dead', job, reason, place)
  job.reason = '=' .. reason
  Job.free_key(base, job)
  Job.finish(base, 'dead', job)
end

-- Of the run that is being settled: its jobs that were settled, how many of each batch, the ends of their leases, and
-- how many were done, retried or buried.
local gone, batches, ends, counts

-- Why the outcome for the run's n-th id is refused; nil where it was applied.
local function apply(run, n, value)
  local base, kind, id, counter = run.base, run.kind, run.ids[n], 'done'
  if not value or gone[id] then -- the second of two outcomes for one lease
    return 'l'
  end
  local batch, taken_at, attempts, keep, lane, key = Record.head_of_taken(value)
  if attempts ~= run.attempts or taken_at ~= run.moments[n] then -- nil where it cannot be read
    return 'l'
  end
  local till = ends[batch]
  if not till then
    till = Lease.end_of(base, batch)
    ends[batch], batches[batch] = till, 0
  end
  if till <= now then
    return 'l'
  end
  if kind == 'r' or kind == 'b' or keep ~= '' or key ~= '' then
    local job, why, from = Record.parse(select(2, Lease.split(value))), nil, run.at + EXTRA[kind] * (n - 1)
    if not job then
      return 'l' -- the next taker buries it
    end
    if kind == 'r' or kind == 'b' or keep ~= '' then -- what becomes of it is kept
      Lease.note_run(base, job, batch, taken_at)
    end
    if kind == 'r' then
      counter = 'retried'
      retry(base, job, from)
    elseif kind == 'b' then
      counter = 'buried'
      bury(base, job, ARGV[from], run.place + n)
    else
      local seen, result = kind == 'f' and tonumber(ARGV[from]), kind == 'f' and ARGV[from + 1] or ''
      why = end_kept(base, job, seen, result, run.place + n)
    end
    if why then
      return why
    end
  end
  if lane ~= '' then
    Lane.end_run(base, lane)
  end
  gone[id] = true
  batches[batch] = batches[batch] + 1
  counts[counter] = (counts[counter] or 0) + 1
end

local refused, is_refused = {}, {}
for _, run in ipairs(outcomes) do
  local values, settled = values_of(run.base .. ':taken', run.ids), {}
  gone, batches, ends, counts = {}, {}, {}, {}
  for n, id in ipairs(run.ids) do
    local why = apply(run, n, values[n])
    if why then
      why = why == 'l' and Lease.why_lost(run.base, id, run.attempts, run.moments[n]) or why
      is_refused[run.place + n] = true
      refused[#refused + 1] = run.place + n - 1 .. ':' .. why
    else
      settled[#settled + 1] = id
    end
  end
  many('HDEL', run.base .. ':taken', settled)
  Rules.ended(run.base, #settled)
  for batch, number in pairs(batches) do
    Lease.release(run.base, batch, number)
  end
  for counter, number in pairs(counts) do
    Lease.count(run.base, counter, number)
  end
end

-- What leaves, sealed, by the names of the runs, and with which of them the reports of outcomes leave, by their places.
local function leaving()
  local sealed, with = {}, {}
  for first = posted_at, posted_at + 4 * posts - 1, 4 do
    local number, run = tonumber(ARGV[first]), ARGV[first + 1]
    if not is_refused[number] then
      sealed[run] = (sealed[run] or '') .. ARGV[first + 3]
      with[number] = ARGV[first + 2] == '1' and run or with[number]
    end
  end
  return sealed, with
end

local function staying()
  local runs, queues = {}, Add.queues_in(ARGV[9])
  for n = 1, count do
    for _ = 1, follow_ups[n] or 0 do
      runs[#runs + 1], at = Add.read_run(at, queues)
      if is_refused[n] then
        runs[#runs] = nil
      end
    end
  end
  return runs
end

local answer = table.concat(refused, ',')
if posts > 0 or any_follow_ups or #Report.noted > 0 then
  local told = Report.send(staying(), leaving())
  answer = told == '' and answer or answer .. ';' .. told
end
Lane.balance()
return answer == '' and '' or remember(answer)
