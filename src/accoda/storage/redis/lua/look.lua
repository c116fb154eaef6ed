-- Looks at jobs without taking them.
--
-- keys:      queues, then the base of each queue to look in
-- arguments: now, call, forget, width, then for each look what, after, ahead
--   what   "#id", "=key", "^" (the job that the next take would give first), or "<turn,id": no job, but how many are
--          ahead of one of another partition that has this turn (or rank) and id
--   after  how many waiters to pass over; empty: tell none
--   ahead  "1" to count the jobs ahead
-- answer:    the present moment, then for each look nothing, or ahead (-1: not counted), newer, waiters, place of the
--            queue (from 0), and what `Job.describe` in parts/job.lua tells
-- uses:      server record placed lease rules lane turn choose line balance due job
local AHEAD_AT_MOST = 10000 -- as in accoda/model.py
local PIECE = 100

-- How many of the first `count` ready jobs have a higher id. Where a rank has many, halving counts them.
local function newer_among(set, count, id)
  local newer, at = 0, 0
  while at < count do
    local found = call('ZRANGE', set, at, math.min(at + PIECE, count) - 1, 'WITHSCORES')
    local score = found[2]
    if #found == 2 * PIECE and score == found[#found] then
      local after = math.min(call('ZCOUNT', set, '-inf', score), count)
      local last = math.min(Placed.count_before(set, score, id), after)
      newer, at = newer + after - math.max(at, last), after
    else
      for n = 1, #found, 2 do
        newer = newer + (sub(found[n], 1, #id) > id and 1 or 0)
      end
      at = at + #found / 2
    end
  end
  return newer
end

-- How many ready jobs would be given before one with this turn and id, and how many of them are newer. Of its own turn
-- none is: those come before it because of their lower ids.
local function count_ahead(base, turn, id)
  local set = base .. ':ready'
  local ahead = math.min(Placed.count_before(set, turn, id), AHEAD_AT_MOST + 1)
  local of_lower_turn = call('ZCOUNT', set, '-inf', '(' .. turn)
  return ahead, newer_among(set, math.min(ahead, of_lower_turn, AHEAD_AT_MOST), id)
end

-- The first ready job that can be read: others are buried by the next taker.
local function head(base)
  Due.apply(base)
  Lane.balance()
  local till, free = Rules.gate(base)
  for _, record in ipairs((till or free == 0) and {} or call('ZRANGE', base .. ':ready', 0, PIECE - 1)) do
    if Record.parse(record) then
      return 'ready', record
    end
  end
end

local function holder(base, key)
  local id = call('HGET', base .. ':keys', key)
  if id then
    local state, record, batch, taken_at = Job.locate_balanced(base, id)
    if WAITING[state] then
      return state, record, batch, taken_at
    end
  end
end

local function find(base, what)
  local kind, name = sub(what, 1, 1), sub(what, 2)
  if kind == '^' then
    return head(base)
  elseif kind == '=' then
    return holder(base, name)
  elseif Job.locate(base, name) then
    return Job.locate_balanced(base, name) -- a kept job may be gone by now
  end
end

local function look(what, after, with_ahead)
  local turn, id = match(what, '^<([^,]*),(%d+)$')
  if turn then
    Due.apply(KEYS[2])
    Lane.balance()
    return {count_ahead(KEYS[2], turn, id)}
  end
  for n = 2, #KEYS do
    local base = KEYS[n]
    local state, record, batch, taken_at = find(base, what)
    local job = state and Record.parse(record)
    if job then
      local ahead, newer = -1, 0
      if with_ahead == '1' and (state == 'ready' or state == 'delayed') then
        local score = state == 'ready' and select(2, Placed.find(base, 'ready', job.id))
        ahead, newer = count_ahead(base, score or job.rank, job.id)
      end
      local waiters = after == '' and {} or call('LRANGE', base .. ':waiters:' .. job.id, after, -1)
      return {ahead, newer, waiters, n - 2, unpack(Job.describe(base, state, record, batch, taken_at))}
    end
  end
  return {}
end

local answer = {moment}
for at = 5, #ARGV, 3 do
  answer[#answer + 1] = look(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
return answer
