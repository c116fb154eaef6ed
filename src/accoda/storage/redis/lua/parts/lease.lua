-- Taken jobs. What a batch shares is stored once for the batch:
--
--   <base>:taken    hash: id -> "batch,rank,record"
--   <base>:ends     sorted set: batch -> the moment at which its lease ends
--   <base>:batches  hash: batch -> "taken_at,ids,worker" (ids: 16 digits each), and "batch#" -> how many are still held
--
-- A name that begins with '?' is no batch, but a look through all taken jobs for those whose batch is gone: see due.lua.
local match = string.match

local function split_taken(value)
  return match(value, '^([^,]*),([^,]*),(.*)$')
end

-- Add to a counter. One that is no number begins again.
local function add_to(key, field, change)
  local reply = redis.pcall('HINCRBY', key, field, change)
  if type(reply) == 'table' then
    call('HSET', key, field, math.max(0, change))
    return math.max(0, change)
  end
  return reply
end

-- `count` jobs of the batch are no longer held; with the last one the batch is gone.
local function release(base, batch, count)
  local left = redis.pcall('HINCRBY', base .. ':batches', batch .. '#', -count)
  if type(left) == 'table' then
    call('HDEL', base .. ':batches', batch .. '#') -- damaged: the batch goes when its lease ends
  elseif left <= 0 then
    call('HDEL', base .. ':batches', batch, batch .. '#')
    call('ZREM', base .. ':ends', batch)
  end
end

-- Since when, which ids, and who; nothing where the batch is not known, or damaged.
local function batch_of(base, batch)
  return match(call('HGET', base .. ':batches', batch) or '', '^(%d*),(%d*),(.*)$')
end

-- When the lease of a batch ends; nil where the batch is lost. Then a look through all taken jobs is due: see due.lua.
local function end_of(base, batch)
  local till = call('ZSCORE', base .. ':ends', batch)
  if till then
    return tonumber(till)
  end
  call('HDEL', base .. ':batches', '') -- first, because it is allowed on a full server (see once.lua)
  call('HSET', base .. ':batches', '?0', '0,,')
  call('ZADD', base .. ':ends', 'NX', now, '?0')
end

-- Who held the job last, and since when, goes to its notes when the run is over. A batch is read once for all its jobs:
-- it names them all, so to read it for each would take a time that grows with the square of their number.
local runs = {}
local function note_run(base, notes, batch)
  local name = base .. ' ' .. batch
  local run = runs[name]
  if not run then
    local taken_at, _, worker = batch_of(base, batch)
    run = {taken_at = taken_at or '', worker = worker and '=' .. worker or ''}
    runs[name] = run
  end
  notes.taken_at, notes.worker = run.taken_at, run.worker
end
