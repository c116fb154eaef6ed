-- What is due by now: delayed jobs start, ended leases come back, kept results go. One call moves at most DUE_AT_ONCE
-- jobs, those first whose moment came first, so that the server is never busy for long; the next calls go on. Until
-- then such a job is as it was, but `settle` and `extend` look at the end of the lease itself, and a call that names a
-- job moves it.
--
-- In each move the new place is written first, so that nothing is lost should a command fail. Only a job of a lane is
-- noted instead, see lane.lua: `Lane.balance` stores it.
local Due = {}
local DUE_AT_ONCE = 1000 -- as in accoda/storage/protocol.py
local may_move = DUE_AT_ONCE -- what is left of it, for all queues of this call

function Due.first_moment(key)
  local score = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  return score and tonumber(score)
end

-- Records that are ready from now on. What cannot be read goes to the head, where the next take
-- finds it and its client buries it.
function Due.make_ready(base, records)
  local ids, scored = {}, {}
  for _, record in ipairs(records) do
    local job = Record.parse(record)
    if job and job.lane ~= '' then
      Lane.come(base, job.lane, job.id, job.rank, job.cost, record)
    elseif job then
      ids[#ids + 1] = job.id
      scored[#scored + 1] = job.rank
      scored[#scored + 1] = record
    else
      call('ZADD', base .. ':ready', '-inf', record)
    end
  end
  Placed.add(base, 'ready', ids, scored)
end

function Due.ids_of(records)
  local ids = {}
  for _, record in ipairs(records) do
    ids[#ids + 1] = Record.head_of(record)
  end
  return ids
end

function Due.start_delayed(base, till)
  local records = call('ZRANGEBYSCORE', base .. ':delayed', '-inf', till, 'LIMIT', 0, may_move)
  Lease.unlock(base)
  Due.make_ready(base, records)
  Placed.remove(base, 'delayed', Due.ids_of(records), records)
  Lease.count(base, 'promoted', #records)
  may_move = may_move - #records
end

-- These taken jobs of a batch, whose lease has ended, are ready again.
function Due.come_back(base, batch, ids, values)
  if #ids == 0 then
    return
  end
  local records = {}
  Lease.unlock(base)
  for n, value in ipairs(values) do
    local _, record, taken_at = Lease.split(value)
    local job = record and Record.parse(record)
    if job then
      Lease.note_run(base, job, batch, taken_at)
      Record.give_back(job, moment)
      job.crashes = Record.plus_one(job.crashes)
      if job.lane ~= '' then
        Lane.end_run(base, job.lane)
      end
    end
    records[n] = job and Record.build(job) or record or value
  end
  Due.make_ready(base, records)
  many('HDEL', base .. ':taken', ids)
  Lease.count(base, 'expired', #ids)
end

-- The jobs that a batch holds, of those whose ids are in `joined`, and their values. Also one whose own batch is not
-- known: nothing else would bring it back. Where the ids are not known either, all taken jobs are looked through.
function Due.held_by(base, batch, joined)
  local ids, held, values = joined and Lease.ids_in(joined) or call('HKEYS', base .. ':taken'), {}, {}
  for n, value in ipairs(values_of(base .. ':taken', ids)) do
    local name = value and (Lease.split(value) or '')
    if value and (name == batch or Lease.end_of(base, name) == 0) then
      held[#held + 1], values[#values + 1] = ids[n], value
    end
  end
  return held, values
end

-- A batch may name many more jobs than may be moved now: most may be settled. So a part of them is looked at.
function Due.end_lease(base, batch)
  local joined, worker = Lease.batch_of(base, batch)
  local at = 16 * math.max(1, may_move)
  local ids, values = Due.held_by(base, batch, joined and sub(joined, 1, at))
  Due.come_back(base, batch, ids, values)
  if joined and at < #joined then
    call('HSET', base .. ':batches', batch, sub(joined, at + 1) .. ',' .. worker)
    Lease.release(base, batch, #ids)
  else
    call('HDEL', base .. ':batches', batch, batch .. '#')
    call('ZREM', base .. ':ends', batch)
  end
  may_move = may_move - math.max(1, #ids)
end

function Due.end_leases(base, till)
  local ended = call('ZRANGEBYSCORE', base .. ':ends', '-inf', till, 'LIMIT', 0, math.min(100, may_move))
  for n = 1, #ended do
    if may_move <= 0 then
      return
    end
    Due.end_lease(base, ended[n])
  end
end

-- Finished jobs are kept until the moments in `<base>:kept`, a sorted set of ids.
function Due.forget_kept(base)
  local ids = call('ZRANGEBYSCORE', base .. ':kept', '-inf', moment, 'LIMIT', 0, may_move)
  for _, state in ipairs({'done', 'cancelled'}) do
    local records = {}
    for _, id in ipairs(ids) do
      records[#records + 1] = Placed.find(base, state, id)
    end
    Placed.remove(base, state, Due.ids_of(records), records)
  end
  for _, id in ipairs(ids) do
    call('DEL', base .. ':waiters:' .. id)
  end
  many('ZREM', base .. ':kept', ids)
  may_move = may_move - #ids
end

-- The kind whose first moment came first is applied up to the first moment of the other, and so on.
function Due.move(base)
  while may_move > 0 do
    local start, ended = Due.first_moment(base .. ':delayed') or now + 1, Due.first_moment(base .. ':ends') or now + 1
    if start > now and ended > now then
      break
    elseif start <= ended then
      Due.start_delayed(base, format('%d', math.ceil(math.min(ended, now))))
    else
      Due.end_leases(base, format('%d', math.ceil(math.min(start, now))))
    end
  end
  if may_move > 0 then
    Due.forget_kept(base)
  end
end

local applied = {}
function Due.apply(base)
  if not applied[base] then -- the present moment stands still
    applied[base] = true
    if call('ZCOUNT', base .. ':delayed', '-inf', moment) + call('ZCOUNT', base .. ':ends', '-inf', moment)
        + call('ZCOUNT', base .. ':kept', '-inf', moment) > 0 then
      Due.move(base)
    end
  end
end
