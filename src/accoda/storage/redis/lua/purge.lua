-- Deletes jobs of a queue in one state, at most 1000 of them, so that the server is never busy for long.
--
-- keys:      calls, queues, base
-- arguments: now, call, forget, width, state
-- answer:    "how many were deleted,1 if there are more"
-- uses:      time once record shelf notes lease due kept locate
local earlier = once(false)
if earlier then
  return earlier
end
local base, state, LIMIT = KEYS[3], ARGV[5], 1000
apply_due(base)
forget_kept(base)
local found
if state == 'taken' then
  found = call('HKEYS', base .. ':taken')
else
  found = call('ZRANGE', base .. ':' .. state, 0, LIMIT - 1)
end
local number = math.min(#found, LIMIT)
for n = 1, number do
  local id = found[n]
  if state == 'dead' or state == 'done' then
    id = match(id, '^[^,]*,(%d+)')
  end
  remove(base, sub(id, 1, 16))
end
local left = call(state == 'taken' and 'HLEN' or 'ZCARD', base .. ':' .. state)
return remember(number .. ',' .. (left > 0 and 1 or 0))
