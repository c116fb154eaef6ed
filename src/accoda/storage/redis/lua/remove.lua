-- Deletes jobs in any state. A running one loses its lease.
--
-- keys:      calls, queues, then the base of each queue to look in
-- arguments: now, call, forget, width, then the ids
-- answer:    how many were deleted
-- uses:      time once record shelf notes lease due kept locate
local earlier = once(false)
if earlier then
  return earlier
end
local removed = 0
for at = 5, #ARGV do
  for n = 3, #KEYS do
    if locate(KEYS[n], ARGV[at]) then
      apply_due(KEYS[n])
      forget_kept(KEYS[n])
      if remove(KEYS[n], ARGV[at]) then
        removed = removed + 1
      end
      break
    end
  end
end
return remember(removed)
