-- Counts queues, each from a few counters: no scan.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width
-- answer:    for each queue "ready,taken,delayed,dead,done,retried,buried,expired,oldest age (ms),paused"; paused is
--            "-" or the moment of its end, empty if it has none; nothing but "!" where a key is of another type. At the
--            end, how many queues there are by now
-- uses:      time record leave bucket shelf notes lease kept due
-- later:     ids aside moves
local SEEK_EACH = 600000 -- ms between looks for jobs whose batch is gone

-- Ids grow, so the oldest job is the one with the lowest. A place without a record is forgotten.
local function oldest(base)
  for _ = 1, 100 do
    local bucket = call('ZRANGE', base .. ':ready:ids', 0, 0)[1]
    if not bucket then
      return 0
    end
    local key = base .. ':ready:ids:' .. bucket
    local places, lowest, rank = call('TYPE', key).ok == 'hash' and call('HGETALL', key) or {}, nil, nil
    for n = 1, #places, 2 do
      if not lowest or places[n] < lowest then
        lowest, rank = places[n], places[n + 1]
      end
    end
    local record = lowest and good_number(rank) and seek(base .. ':ready', rank, bucket .. lowest)
    local created = record and match(record, '^%d+%a%d+,(%d+),')
    if created then
      return math.min(now, math.max(0, now - created))
    end
    unlock(base)
    if lowest then
      in_bucket('HDEL', key, {lowest})
    end
    if not lowest or call('EXISTS', key) == 0 then
      call('DEL', key)
      call('ZREM', base .. ':ready:ids', bucket)
    end
  end
  return 0
end

-- A job may be taken by a batch that is nowhere: deleted, or damaged. Now and then, and at once where no lease is left,
-- all taken jobs are looked through for such, a part at a time (see due.lua).
local function look_for_lost(base, taken, looked_at)
  if taken == 0 then
    return
  end
  looked_at = looked_at and good_number(looked_at)
  local none = call('EXISTS', base .. ':ends') == 0
  if none or not looked_at or looked_at > now or looked_at < now - SEEK_EACH then
    unlock(base)
    call('HSET', base .. ':meta', 'looked', whole(now))
    if none or looked_at then
      call('HSET', base .. ':batches', '?0', '0,,')
      call('ZADD', base .. ':ends', 'NX', now, '?0')
    end
  end
end

local function count(base)
  rest().end_the_endless(base)
  apply_due(base)
  local counts = call('HMGET', base .. ':meta', 'done', 'retried', 'buried', 'expired', 'looked')
  local taken = call('HLEN', base .. ':taken')
  look_for_lost(base, taken, counts[5])
  for m = 1, 4 do
    counts[m] = match(counts[m] or '', '^%d+$') and #counts[m] <= 16 and counts[m] or 0
  end
  return table.concat({call('ZCARD', base .. ':ready'), taken, call('ZCARD', base .. ':delayed'),
    call('ZCARD', base .. ':dead'), table.concat(counts, ',', 1, 4), whole(oldest(base)), paused(base) or '-'}, ',')
end

local answer = {}
for n = 2, #KEYS do
  local ok, text = attempt(count, KEYS[n])
  answer[n - 1] = ok and text or '!'
end
answer[#KEYS] = tostring(call('SCARD', KEYS[1]))
return answer
