-- Gives waiting jobs new ranks.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, then id, rank, the number of waiters seen (or empty) for each
-- answer:    how many were applied
-- uses:      time record leave bucket shelf notes lease kept due
-- later:     ids aside moves
local base, applied = KEYS[2], 0
apply_due(base)
for at = 5, #ARGV, 3 do
  local id, rank, seen = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local state, record = waiting(base, id)
  if state and not (seen and waiters_of(base, id) > seen) then
    local bucket, digits = ':ids:' .. sub(id, 1, width), sub(id, width + 1)
    if state == 'ready' then
      call('ZADD', base .. ':ready', rank, record)
      call('HSET', base .. ':ready' .. bucket, digits, rank)
    else
      local start = split_place(call('HGET', base .. ':delayed' .. bucket, digits))
      call('HSET', base .. ':delayed' .. bucket, digits, start .. ',' .. rank)
    end
    applied = applied + 1
  end
end
return applied
