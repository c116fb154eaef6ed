-- Gives a queue other rules for its lanes, and balances the lanes, a piece of them at a time, in the order of their
-- names.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, name, after, what, rules (or empty: none), then lane, rules of its own for each
--            that has some (all as in parts/lane.lua)
--   after   the lane after which to begin (or empty)
--   what    "set": these rules hold from now on; else they stay as they are. "mend": look for what damage has left over
-- answer:    the last lane of the piece; empty: that was all
-- uses:      server record placed lease lane balance due
local AT_ONCE = 1000
local base, after, what = KEYS[2], ARGV[6], ARGV[7]

local function set()
  call('HDEL', base .. ':meta', 'lanes')
  call('DEL', base .. ':rules')
  if ARGV[8] ~= '' then
    call('SADD', KEYS[1], ARGV[5])
    call('HSET', base .. ':meta', 'lanes', ARGV[8])
    local own = {}
    for at = 9, #ARGV do
      own[at - 8] = ARGV[at]
    end
    many('HSET', base .. ':rules', own)
  end
  Lane.note_taken(base)
  call('PUBLISH', base .. ':wake', '') -- `total` may be higher
end

-- Forget entries whose job is not there: they would take a place in its lane for ever.
local function mend(lane)
  for _, member in ipairs(call('ZRANGEBYLEX', base .. ':lanes', '[' .. lane .. '\0', '(' .. lane .. '\1')) do
    local kind, id = match(member, '%z([hrs])%x+$'), sub(member, -16)
    local record = kind and Placed.find(base, kind == 'h' and 'held' or 'ready', id)
    if kind == 's' then
      record = select(2, Lease.split(call('HGET', base .. ':taken', id) or ''))
    end
    if select(4, Record.head_of(record or '')) ~= lane then
      call('ZREM', base .. ':lanes', member)
      call('ZREM', base .. ':turns', kind == 'r' and id or '')
    end
  end
end

Lease.unlock(base)
if what == 'set' then
  set()
end
Due.apply(base)
Lane.balance()
for _ = 1, AT_ONCE do
  local member = call('ZRANGEBYLEX', base .. ':lanes', '(' .. after .. '\1', '+', 'LIMIT', '0', '1')[1]
  if not member then
    return ''
  end
  after = match(member, '^%Z*')
  if what == 'mend' then
    mend(after)
  end
  Lane.touch(base, after)
  Lane.balance()
end
return after
