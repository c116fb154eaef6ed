-- Balances lanes of some queues after set_lanes.lua, until many jobs have moved.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width, what, is_last, then the lanes, in order
--   what     the mark of set_lanes.lua, or "mend": look for what damage has left over, too
--   is_last  1 if these are the last lanes
-- answer:    how many of the lanes are balanced; the next step begins with the others
-- uses:      server record placed lease rules lane turn choose line balance due
local bases, lanes = {unpack(KEYS, 2)}, {unpack(ARGV, 7)}
Lease.unlock(bases[1])

-- Forget the ready jobs of a lane that are not there, and count its places anew: what damage has left over would take
-- them for ever.
local function mend(base, lane, taken)
  local key = base .. ':ready:of:' .. lane
  for _, member in ipairs(call('ZRANGE', key, '0', '-1')) do
    if select(4, Record.head_of(Placed.find(base, 'ready', sub(member, 9, -17)) or '')) ~= lane then
      call('ZREM', key, member)
      call('ZREM', base .. ':turns', member)
    end
  end
  local count = call('ZCARD', key) + (taken[lane] or 0)
  call('HSET', base .. ':lanes', lane, format('%d', count))
end

for _, base in ipairs(ARGV[5] == 'mend' and bases or {}) do
  local taken = {}
  for _, value in ipairs(call('HVALS', base .. ':taken')) do
    local lane = select(5, Record.head_of_taken(value)) or ''
    taken[lane] = (taken[lane] or 0) + 1
  end
  for _, lane in ipairs(lanes) do
    mend(base, lane, taken)
  end
end
local done = Lane.balance_some(bases, lanes)
for _, base in ipairs(ARGV[6] == '1' and done == #lanes and bases or {}) do
  if call('HGET', base .. ':meta', 'unbalanced') == ARGV[5] then -- else there are newer rules
    call('HDEL', base .. ':meta', 'unbalanced')
  end
end
return done
