-- Deletes jobs in any state. A running one loses its lease.
--
-- keys:      calls, queues, then the base of each queue to look in
-- arguments: now, call, forget, width, then the ids
-- answer:    how many were deleted
-- uses:      time once record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate
local earlier = once(false)
if earlier then
  return earlier
end
local locate, remove = rest().locate, rest().remove
local function remove_from(base, id)
  if not locate(base, id) then
    return false
  end
  apply_due(base)
  return true, remove(base, id)
end

local removed = 0
for at = 5, #ARGV do
  for n = 3, #KEYS do
    local ok, here, gone = attempt(remove_from, KEYS[n], ARGV[at])
    if ok and here then
      removed = removed + (gone and 1 or 0)
      break
    end
  end
end
return remember(removed)
