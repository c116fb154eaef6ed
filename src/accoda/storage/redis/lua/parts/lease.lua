-- Taken jobs. What a batch shares is stored once for the batch:
--
--   <base>:taken    hash: id -> "batch,rank,record"
--   <base>:ends     sorted set: batch -> the moment at which its lease ends
--   <base>:batches  hash: batch -> "taken_at,ids,worker" (ids: 16 digits each), and "batch#" -> how many are still held
local function split_taken(value)
  return match(value, '^([^,]*),([^,]*),(.*)$')
end

-- `count` jobs of the batch are no longer held; with the last one the batch is gone.
local function release(base, batch, count)
  if call('HINCRBY', base .. ':batches', batch .. '#', -count) <= 0 then
    call('HDEL', base .. ':batches', batch, batch .. '#')
    call('ZREM', base .. ':ends', batch)
  end
end

local function batch_of(base, batch)
  return match(call('HGET', base .. ':batches', batch), '^(%d+),(%d*),(.*)$')
end

-- Who held the job last, and since when, goes to its notes when the run is over. A batch is read once for all its jobs:
-- it names them all, so to read it for each would take a time that grows with the square of their number.
local runs = {}
local function note_run(base, notes, batch)
  local name = base .. ' ' .. batch
  local run = runs[name]
  if not run then
    local taken_at, _, worker = batch_of(base, batch)
    run = {taken_at = taken_at, worker = '=' .. worker}
    runs[name] = run
  end
  notes.taken_at, notes.worker = run.taken_at, run.worker
end
