-- Deletes jobs that wait or run, unless they have more waiters than those who want them gone have seen.
--
-- keys:      calls, queues, then the base of each queue
-- arguments: now, call, forget, width, then for each the number of its queue, counted from 1; its id; the number of
--            waiters seen
-- answer:    a letter for each: 1 where it was deleted, 0 where it has more waiters or is not there, ! where a key of its
--            queue is of another type
-- uses:      time once record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate present
local earlier = once(false)
if earlier then
  return earlier
end

local function drop(base, id, seen)
  apply_due(base)
  local state = rest().locate_now(base, id)
  if not state or state == 'dead' or state == 'done' or waiters_of(base, id) > seen then
    return false
  end
  return rest().remove(base, id)
end

local said = {}
for at = 5, #ARGV, 3 do
  local ok, gone = attempt(drop, KEYS[2 + ARGV[at]], ARGV[at + 1], tonumber(ARGV[at + 2]))
  said[#said + 1] = not ok and '!' or gone and '1' or '0'
end
return remember(table.concat(said))
