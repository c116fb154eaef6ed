-- The rules of a queue for its lanes, and how many jobs these have, a piece of the lanes at a time, in the order of
-- their names.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, the lane after which to begin (or empty)
-- answer:    the last lane of the piece (empty: that was all), then lane, ready, held for each. With the first piece
--            there come before it the rules (or empty), those that lanes have of their own, and how many are taken of each
--            lane: two lists in which a lane and what is told of it follow each other
-- uses:      server record placed lease lane balance due
local LANES_AT_ONCE = 1000
local base, after = KEYS[2], ARGV[5]
Due.apply(base)
Lane.balance()

local function taken()
  local counts, told = {}, {}
  for _, value in ipairs(call('HVALS', base .. ':taken')) do
    local lane = select(5, Record.head_of_taken(value)) or ''
    if lane ~= '' then
      counts[lane] = (counts[lane] or 0) + 1
    end
  end
  for lane, count in pairs(counts) do
    told[#told + 1], told[#told + 2] = lane, count
  end
  return told
end

local function count(lane, from, till)
  return call('ZLEXCOUNT', base .. ':lanes', '[' .. lane .. '\0' .. from, '(' .. lane .. '\0' .. till)
end

local found = {''}
for _ = 1, LANES_AT_ONCE do
  local member = call('ZRANGEBYLEX', base .. ':lanes', '(' .. after .. '\1', '+', 'LIMIT', '0', '1')[1]
  if not member then
    found[1] = ''
    break
  end
  after = match(member, '^%Z*')
  found[1] = after
  found[#found + 1], found[#found + 2], found[#found + 3] = after, count(after, 'r', 's'), count(after, 'h', 'i')
end
if ARGV[5] == '' then
  return {call('HGET', base .. ':meta', 'lanes') or '', call('HGETALL', base .. ':rules'), taken(), unpack(found)}
end
return found
