-- Whole batches are done: every job that a take gave, all of them plain. Which these are stands in the batch's own
-- record, so they are not named one by one. Other outcomes are for settle.lua.
--
-- keys:      calls, queues, then the base of each queue
-- arguments: now, call, forget, width, then queue (counted from 1), batch, size for each batch
-- answer:    the places of batches to which nothing was done, with commas, counted from 0; settle.lua knows what to do
-- uses:      time once
--
-- Why the leases are current. A batch is named anew by each take, and its count falls with every job that leaves it: by an
-- outcome, a removal, another lease (extend.lua), the end of the lease. So where as many are held as were taken, they
-- are those that were taken, with the attempts that they had; and the end of their lease is that of the batch. A plain job
-- has no key, so nothing can be attached to it or replace it, and it leaves nothing behind.
local earlier = once(false)
if earlier then
  return earlier
end
local CHUNK = 4000 -- arguments of one command; Lua's stack ends at 8000
local sub = string.sub

local function ids_of(base, batch, size)
  local found = call('HMGET', base .. ':batches', batch, batch .. '#')
  if found[2] ~= size or not found[1] then
    return nil
  end
  local joined = string.match(found[1], '^%d*,(%d*),')
  local till = call('ZSCORE', base .. ':ends', batch)
  if not joined or #joined ~= 16 * size or not till or tonumber(till) <= now then
    return nil
  end
  local ids = {}
  for n = 1, tonumber(size) do
    ids[n] = sub(joined, 16 * n - 15, 16 * n)
  end
  return ids
end

local function finish(base, batch, size)
  local ids, gone = ids_of(base, batch, size), 0
  if not ids then
    return false
  end
  for from = 1, #ids, CHUNK do
    gone = gone + call('HDEL', base .. ':taken', unpack(ids, from, math.min(from + CHUNK - 1, #ids)))
  end
  call('HDEL', base .. ':batches', batch, batch .. '#')
  call('ZREM', base .. ':ends', batch)
  if type(redis.pcall('HINCRBY', base .. ':meta', 'done', string.format('%d', gone))) == 'table' then
    redis.pcall('HSET', base .. ':meta', 'done', gone) -- it was no number: it begins again
  end
  return true
end

-- A key of another type shows before anything is changed.
local left = {}
for at = 5, #ARGV, 3 do
  local ok, done = pcall(finish, KEYS[2 + ARGV[at]], ARGV[at + 1], ARGV[at + 2])
  if not ok or not done then
    left[#left + 1] = (at - 5) / 3
  end
end
if #left == 0 then
  return ''
end
return remember(table.concat(left, ','))
