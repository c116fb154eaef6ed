-- Counts queues, each from a few counters: no scan.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width
-- answer:    for each queue "ready,held,taken,delayed,dead,done,retried,buried,expired,cancelled,promoted,oldest age
--            (ms),paused"; paused is "-" or the moment of its end, empty if it has none. At the end, how many queues
--            there are by now
-- uses:      server record placed lease rules lane turn choose line balance due

-- Ids grow, so the oldest job is the one with the lowest.
local function oldest(base)
  for _, id in ipairs(Placed.ids_from(base, 'ready', '', 1)) do
    local job = Record.parse(Placed.find(base, 'ready', id) or '')
    if job then
      return math.max(0, now - job.created)
    end
  end
  return 0
end

local answer = {}
for n = 2, #KEYS do
  local base = KEYS[n]
  Due.apply(base)
  Lane.balance()
  local counts = call('HMGET', base .. ':meta', 'done', 'retried', 'buried', 'expired', 'cancelled', 'promoted')
  for m = 1, 6 do
    local text = counts[m] or ''
    counts[m] = #text <= 16 and match(text, '^%d+$') or 0 -- one that is damaged begins again
  end
  answer[n - 1] = table.concat({call('ZCARD', base .. ':ready'), call('ZCARD', base .. ':held'),
    call('HLEN', base .. ':taken'), call('ZCARD', base .. ':delayed'), call('ZCARD', base .. ':dead'),
    table.concat(counts, ','), format('%d', oldest(base)), Rules.gate(base) or '-'}, ',')
end
answer[#KEYS] = tostring(call('SCARD', KEYS[1]))
return answer
