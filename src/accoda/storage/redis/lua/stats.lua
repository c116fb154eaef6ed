-- Counts queues, each from a few counters: no scan.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width
-- answer:    for each queue "ready,taken,delayed,dead,done,retried,buried,expired,oldest age (ms),paused"; paused is
--            "-" or the moment of its end, empty if it has none
-- uses:      time record shelf notes lease due kept
local function oldest(base)
  local bucket = call('ZRANGE', base .. ':ready:ids', 0, 0)[1]
  if not bucket then
    return 0
  end
  local places, lowest, rank = call('HGETALL', base .. ':ready:ids:' .. bucket)
  for n = 1, #places, 2 do
    if not lowest or places[n] < lowest then
      lowest, rank = places[n], places[n + 1]
    end
  end
  local record = seek(base .. ':ready', rank, bucket .. lowest)
  return math.max(0, now - match(record, '^%d+%a%d+,(%d+)'))
end

local answer = {}
for n = 2, #KEYS do
  local base = KEYS[n]
  apply_due(base)
  forget_kept(base)
  local counts = call('HMGET', base .. ':meta', 'done', 'retried', 'buried', 'expired')
  for m = 1, 4 do
    counts[m] = counts[m] or 0
  end
  answer[n - 1] = table.concat({call('ZCARD', base .. ':ready'), call('HLEN', base .. ':taken'),
    call('ZCARD', base .. ':delayed'), call('ZCARD', base .. ':dead'), table.concat(counts, ','), whole(oldest(base)),
    paused(base) or '-'}, ',')
end
return answer
