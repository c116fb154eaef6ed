-- Applies changes to jobs, one after the other.
--
-- keys:      calls, ids, queues, outbox, then the base of each queue to look in
-- arguments: now, call, forget, width, step, number, floor, run, then for each change queue, kind, id, waiters, rank
--   run      that of reports, see parts/report.lua
--   queue    its number, from 1; 0: whichever
--   kind     remove, cancel, revive, start, alive (it did not crash) or rank
--   waiters  how many were seen: with more by now, nothing is changed; empty: whatever
--   rank     the new one, for the kind "rank"
-- answer:    a digit for each: 1 where it was applied; then, if reports went to the outbox, the run
-- uses:      server once record placed lease rules lane turn choose line balance due job add report
local earlier = once(false)
if earlier then
  return earlier
end

local CANCELLED_FOR = 60 -- as in accoda/model.py

-- The job ends as cancelled, with the token of the lease that it loses. In its new place first, so that nothing is lost
-- should a command fail.
local function cancel(base, state, record, batch, taken_at)
  local job = Record.parse(record)
  if not job then
    return false
  end
  if state == 'taken' then
    Lease.note_run(base, job, batch, taken_at)
    if (tonumber(job.keep) or 0) < CANCELLED_FOR then -- so that its worker is told
      job.keep = format('%.1f', CANCELLED_FOR)
    end
  end
  Lease.count(base, 'cancelled', 1)
  Report.note('cancelled', job)
  if job.keep == '' then
    Job.remove(base, job.id, state, record, batch)
  else
    Job.keep(base, 'cancelled', job)
    Job.free_key(base, job)
    Job.lift(base, job.id, state, record, batch)
  end
  return true
end

local function revive(base, id, record)
  local job = Record.parse(record)
  if not job or (job.key ~= '' and call('HSETNX', base .. ':keys', job.key, id) == 0) then
    return false
  end
  Placed.remove(base, 'dead', {id}, {record})
  Record.give_back(job, moment)
  Record.begin_again(job)
  job.ended_at = ''
  Job.line_up(base, job)
  Report.note('revived', job)
  return true
end

local function start(base, id, record)
  local job = Record.parse(record)
  if not job then
    return false
  end
  job.start = moment
  Job.line_up(base, job)
  Placed.remove(base, 'delayed', {id}, {record})
  return true
end

local function rerank(base, state, record, rank)
  local job = Record.parse(record)
  if not job then
    return false
  end
  Job.rerank(base, state, record, job, rank)
  return true
end

local function take_crash_back(base, state, record, batch, taken_at)
  local job = Record.parse(record)
  local crashes = job and tonumber(job.crashes) or 0
  if crashes == 0 then
    return false
  end
  job.crashes = crashes > 1 and format('%d', crashes - 1) or ''
  Job.rewrite(base, state, record, job, batch, taken_at)
  return true
end

-- Whether the job is one of this queue, and whether it was changed.
local function change(base, kind, id, seen, rank)
  if not Job.locate(base, id) then
    return false
  end
  local state, record, batch, taken_at = Job.locate_balanced(base, id)
  if not state or (seen and Job.waiters_of(base, id) > seen) then
    return true, false
  elseif kind == 'remove' and (not seen or WAITING[state]) then
    Report.removed(state, record)
    Job.remove(base, id, state, record, batch)
    return true, true
  elseif kind == 'cancel' and WAITING[state] then
    return true, cancel(base, state, record, batch, taken_at)
  elseif kind == 'revive' and state == 'dead' then
    return true, revive(base, id, record)
  elseif kind == 'start' and state == 'delayed' then
    return true, start(base, id, record)
  elseif kind == 'rank' and WAITING[state] and state ~= 'taken' then
    return true, rerank(base, state, record, rank)
  elseif kind == 'alive' and WAITING[state] then
    return true, take_crash_back(base, state, record, batch, taken_at)
  end
  return true, false
end

local answer = {}
for at = 9, #ARGV, 5 do
  local number, changed = tonumber(ARGV[at]), false
  for n = number > 0 and number or 1, number > 0 and number or #KEYS - 4 do
    local here, applied_here = change(KEYS[4 + n], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4])
    Lane.balance()
    if here then
      changed = applied_here
      break
    end
  end
  answer[#answer + 1] = changed and '1' or '0'
end
return remember(table.concat(answer) .. Report.send({}, {}, {}))
