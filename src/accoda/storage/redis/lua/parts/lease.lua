-- Taken jobs. What a batch shares is stored once for the batch, except the moment of its take: `settle` and `extend`
-- compare that for each job, as a part of the token, and find it where they find the attempts.
--
--   <base>:taken    hash: id -> "batch,taken_at,record"
--   <base>:ends     sorted set: batch -> the moment at which its lease ends
--   <base>:batches  hash: batch -> "ids,worker" (ids: 16 digits each), and "batch#" -> how many are still held
local Lease = {}

-- batch, record, taken_at; nothing where it is damaged.
function Lease.split(value)
  local batch, taken_at, record = match(value, '^([^,]*),(%d+),(.*)$')
  return batch, record, taken_at
end

-- ids, worker; nothing where the batch is not known, or damaged, or holds what is no record.
function Lease.batch_of(base, batch)
  return match(call('HGET', base .. ':batches', batch) or '', '^(%d+),(.*)$')
end

-- The ids in a text of them.
function Lease.ids_in(joined)
  local ids = {}
  for n = 1, #joined / 16 do
    ids[n] = sub(joined, 16 * n - 15, 16 * n)
  end
  return ids
end

-- When the lease of a batch ends. A batch that is not known has ended.
function Lease.end_of(base, batch)
  return tonumber(call('ZSCORE', base .. ':ends', batch) or 0)
end

-- Why a lease that is not current is refused: 'c' where its job was cancelled, which keeps the token of its last lease
-- while it is kept; else 'l', lost.
function Lease.why_lost(base, id, attempts, taken_at)
  local job = Record.parse(Placed.find(base, 'cancelled', id) or '')
  local is_its = job and job.attempts == attempts and job.taken_at == taken_at
  return is_its and tonumber(call('ZSCORE', base .. ':kept', id) or 0) > now and 'c' or 'l'
end

-- Before anything that needs memory comes a command that is allowed on a full server: see once.lua.
function Lease.unlock(base)
  call('HDEL', base .. ':batches', '')
end

-- Lease these jobs until `till`, under a new name. `held` is id, value, id, value...
function Lease.give(base, batch, till, text, held)
  many('HSET', base .. ':taken', held)
  call('ZADD', base .. ':ends', till, batch)
  call('HSET', base .. ':batches', batch, text, batch .. '#', format('%d', #held / 2))
end

-- `count` jobs of the batch are no longer held; with the last one the batch is gone. Where the number is damaged, it
-- goes when its lease ends.
function Lease.release(base, batch, count)
  local left = redis.pcall('HINCRBY', base .. ':batches', batch .. '#', format('%d', -count))
  if type(left) == 'number' and left <= 0 then
    call('HDEL', base .. ':batches', batch, batch .. '#')
    call('ZREM', base .. ':ends', batch)
  end
end

-- Add to a counter of the queue. One that is no number begins again.
function Lease.count(base, counter, number)
  if type(redis.pcall('HINCRBY', base .. ':meta', counter, format('%d', number))) ~= 'number' then
    call('HSET', base .. ':meta', counter, format('%d', number))
  end
end

-- The worker that held the job, and since when, becomes part of its record when the run is over. A batch is read once
-- for all its jobs: it names them all, so to read it for each would take a time that grows with the square of their
-- number.
local workers = {}
function Lease.note_run(base, job, batch, taken_at)
  local name = base .. ' ' .. batch
  local worker = workers[name]
  if not worker then
    worker = select(2, Lease.batch_of(base, batch)) or ''
    workers[name] = worker
  end
  job.taken_at, job.worker = taken_at, worker
end
