-- The rules of a queue for its lanes, or how many jobs these have, a piece of the lanes at a time.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, where to go on ("0": at the beginning; "rules": these alone)
-- answer:    where to go on ("0": that was all), then lane, ready, held, taken for each of a piece; with "rules": they
--            (or empty), and a list of lane, rules of its own for each that has some (both as in parts/rules.lua)
-- uses:      server record placed lease rules lane turn choose line balance due
local LANES_AT_ONCE = 1000
local base, at = KEYS[2], ARGV[5]
if at == 'rules' then
  return {call('HGET', base .. ':meta', 'lanes') or '', call('HGETALL', base .. ':rules')}
end
Due.apply(base)
Lane.balance()
local page = call('HSCAN', base .. ':lanes', at, 'COUNT', LANES_AT_ONCE)
local found = {page[1]}
for n = 1, #page[2], 2 do
  local lane, ready = page[2][n], call('ZCARD', base .. ':ready:of:' .. page[2][n])
  local size = #found
  found[size + 1], found[size + 2], found[size + 3] = lane, ready, call('ZCARD', base .. ':held:of:' .. lane)
  found[size + 4] = math.max(0, (tonumber(page[2][n + 1]) or 0) - ready)
end
return found
