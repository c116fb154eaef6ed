-- One job: where it is, and how it comes to another place.
local Job = {}
local WAITING = {ready = true, delayed = true, held = true, taken = true}
local ENDED = {dead = true, done = true, cancelled = true}

function Job.waiters_of(base, id)
  return call('LLEN', base .. ':waiters:' .. id)
end

-- A key is held by the job that is ready, delayed, held or taken under it: `<base>:keys`, a hash of keys and ids.
function Job.free_key(base, job)
  if job.key ~= '' and call('HGET', base .. ':keys', job.key) == job.id then
    call('HDEL', base .. ':keys', job.key)
  end
end

-- Where a job is: its state, its record, and if it is taken its batch and the moment of the take. nil: nowhere in this
-- queue.
function Job.locate(base, id)
  Lane.hold_noted(base)
  local value = call('HGET', base .. ':taken', id)
  if value then
    local batch, record, taken_at = Lease.split(value)
    return 'taken', record or value, batch or '', taken_at or ''
  end
  for _, state in ipairs({'ready', 'delayed', 'dead', 'done', 'cancelled', 'held'}) do
    local record = Placed.find(base, state, id)
    if record then
      return state, record
    end
  end
end

-- Let a job wait until its start time, and wake sleepers: for a first ready job, or a sooner start.
function Job.line_up(base, job)
  local state = tonumber(job.start) <= now and 'ready' or 'delayed'
  local set, record = base .. ':' .. state, Record.build(job)
  if state == 'ready' and job.lane ~= '' then
    Lane.come(base, job.lane, job.id, job.rank, job.cost, record)
    return
  end
  Placed.add(base, state, {job.id}, {state == 'ready' and job.rank or job.start, record})
  if state == 'ready' and call('ZCARD', set) == 1 or state == 'delayed' and call('ZRANK', set, record) == 0 then
    call('PUBLISH', base .. ':wake', '')
  end
end

-- Put a changed record in the place of the old one. The lease of a running job stays.
function Job.rewrite(base, state, record, job, batch, taken_at)
  if state == 'taken' then
    call('HSET', base .. ':taken', job.id, batch .. ',' .. taken_at .. ',' .. Record.build(job))
  else
    local _, score = Placed.find(base, state, job.id)
    Placed.remove(base, state, {job.id}, {record})
    Placed.add(base, state, {job.id}, {score or job.rank, Record.build(job)})
  end
end

-- Give a job another rank. One that is ready or held leaves the line and comes in again.
function Job.rerank(base, state, record, job, rank, batch, taken_at)
  job.rank = rank
  if state == 'taken' or state == 'delayed' then
    Job.rewrite(base, state, record, job, batch, taken_at)
    return
  end
  Job.lift(base, job.id, state, record)
  if job.lane ~= '' then
    Lane.come(base, job.lane, job.id, rank, job.cost, Record.build(job))
  else
    Placed.add(base, state, {job.id}, {rank, Record.build(job)})
  end
end

-- Put a job among those that have ended in this way.
function Job.finish(base, state, job)
  job.ended_at = moment
  Placed.add(base, state, {job.id}, {moment, Record.build(job)})
end

-- The same for a while, as long as its `keep_for` says.
function Job.keep(base, state, job)
  Job.finish(base, state, job)
  call('ZADD', base .. ':kept', format('%d', now + math.floor(job.keep * 1000 + 0.5)), job.id)
end

-- Take a job away from where it is. A running one loses its lease.
function Job.lift(base, id, state, record, batch)
  local lane = select(4, Record.head_of(record)) or ''
  if lane ~= '' and (state == 'taken' or state == 'ready' or state == 'held') then
    Lane.leave(base, state, lane, id, record)
  end
  if state == 'taken' then
    call('HDEL', base .. ':taken', id)
    Lease.release(base, batch, 1)
    Rules.ended(base, 1)
  else
    Placed.remove(base, state, {id}, {record})
  end
end

-- Delete a job and all that belongs to it.
function Job.remove(base, id, state, record, batch)
  Job.lift(base, id, state, record, batch)
  local job = WAITING[state] and Record.parse(record)
  if job then
    Job.free_key(base, job)
  end
  call('DEL', base .. ':waiters:' .. id)
  call('ZREM', base .. ':kept', id)
end

-- `locate` after what is due, also where that is more than one call may move: then the job's own move is applied.
function Job.locate_now(base, id)
  Due.apply(base)
  local state, record, batch, taken_at = Job.locate(base, id)
  if state == 'delayed' and tonumber(select(2, Placed.find(base, state, id))) <= now then
    Lease.unlock(base)
    Due.make_ready(base, {record})
    Placed.remove(base, 'delayed', {id}, {record})
    Lease.count(base, 'promoted', 1)
    return Job.locate(base, id)
  elseif state == 'taken' and Lease.end_of(base, batch) <= now then
    Due.come_back(base, batch, {id}, {call('HGET', base .. ':taken', id)})
    Lease.release(base, batch, 1)
    return Job.locate(base, id)
  elseif ENDED[state] and tonumber(call('ZSCORE', base .. ':kept', id) or now + 1) <= now then
    Job.remove(base, id, state, record)
    return
  end
  return state, record, batch, taken_at
end

-- The same when its lane is balanced, after what was due.
function Job.locate_balanced(base, id)
  local state, record, batch, taken_at = Job.locate_now(base, id)
  if Lane.balance() then
    return Job.locate(base, id)
  end
  return state, record, batch, taken_at
end

-- What `look` and `browse` tell of a job: state, lease_until, taken_at and worker (the last three of a taken job only),
-- waiters, turn (of a ready job of a lane), record.
function Job.describe(base, state, record, batch, taken_at)
  local till, worker, turn = '', '', ''
  local id, _, _, lane = Record.head_of(record)
  if state == 'ready' and (lane or '') ~= '' then
    turn = Placed.score_of(base, 'ready', id) or ''
  end
  if batch then
    till = format('%d', Lease.end_of(base, batch))
    worker = select(2, Lease.batch_of(base, batch)) or ''
  end
  return {state, till, taken_at or '', worker, Job.waiters_of(base, id or ''), turn, record}
end
