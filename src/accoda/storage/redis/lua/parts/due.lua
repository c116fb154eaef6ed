-- What is due by now: delayed jobs start, ended leases come back, kept results go. One call moves at most DUE_AT_ONCE
-- jobs, those first whose moment came first, so that the server is never busy for long; the next calls go on. Until then
-- such a job is as it was, but nobody is deceived: `settle`, `extend` and `waiters` look at the end of the lease itself.
local match, find = string.match, string.find
local DUE_AT_ONCE = 1000 -- as in accoda/storage/protocol.py
local may_move = DUE_AT_ONCE -- what is left of it, for all queues of this call

-- What is seldom needed is in moves.lua and made only then: see scripts.py.
-- Before anything that needs memory comes a command that is allowed on a full server (see once.lua).
local function unlock(base)
  call('HDEL', base .. ':batches', '')
end

local function first_moment(key)
  local score = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  return score and tonumber(score)
end

local applied = {}
local function apply_due(base)
  if applied[base] then
    return -- the present moment stands still
  end
  local start, ended, kept = first_moment(base .. ':delayed'), first_moment(base .. ':ends'), first_moment(base .. ':kept')
  applied[base] = true -- not before: a key of another type fails each time
  if (start and start <= now) or (ended and ended <= now) or (kept and kept <= now) then
    rest().move_due(base)
  end
end

local function paused(base)
  local till = call('HGET', base .. ':meta', 'paused')
  return till and (till == '' or (#till <= 16 and match(till, '^%d+$') and tonumber(till) > now)) and till
end

-- For calls that concern several queues: one with a key of another type does not stop the others.
local function attempt(act, ...)
  local ok, answer, second = pcall(act, ...)
  if not ok then
    local text = type(answer) == 'table' and answer.err or answer
    if not find(text, 'WRONGTYPE', 1, true) then
      error(answer, 0)
    end
  end
  return ok, answer, second
end
