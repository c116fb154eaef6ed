-- Looks at jobs without taking them: at those that hold a key, or at the first ready one of a queue.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width, then for each look the number of its queue, counted from 1; the key ('=' and its
--            text; empty: the first ready job); how many waiters to pass over (empty: tell none of them)
-- answer:    the present moment, then for each look nothing, or its waiters and what parts/locate.lua describes; 0 where
--            an earlier look met more that was due than one call may move: to be asked again
-- uses:      time record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate present

-- The job that the next take would give first. What cannot be read is set aside, as many as may be moved in one call.
local function first_ready(base)
  if paused(base) then
    return
  end
  while true do
    local found = call('ZRANGE', base .. ':ready', 0, 0, 'WITHSCORES')
    local record, rank = found[1], found[2]
    if not record then
      return
    elseif rank ~= 'inf' and rank ~= '-inf' and parse(record) then
      return 'ready', record, rank
    elseif may_move <= 0 then
      return
    end
    unlock(base)
    rest().clear_shelf(base, 'ready', record, 'a ready job')
    may_move = may_move - 1
  end
end

-- The job that holds a key: as a newcomer with this key would find it, see parts/add.lua.
local function holder(base, key)
  local id = call('HGET', base .. ':keys', key)
  if id and match(id, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') then
    local state, record, rank, batch = rest().locate_now(base, id)
    if state ~= 'dead' and state ~= 'done' then
      return state, record, rank, batch
    end
  end
end

local function waiters_after(base, id, after)
  if after == '' then
    return {}
  end
  local found = redis.pcall('LRANGE', base .. ':waiters:' .. id, after, -1)
  return found.err and {} or found
end

local function peek(base, key, after)
  apply_due(base)
  local state, record, rank, batch
  if key == '' then
    state, record, rank = first_ready(base)
  else
    state, record, rank, batch = holder(base, sub(key, 2))
  end
  if not state then
    return {}
  end
  local waiters = waiters_after(base, sub(record, 1, 16), after)
  return {waiters, unpack(rest().describe(base, state, record, rank, batch))}
end

local answer = {whole(now)}
for at = 5, #ARGV, 3 do
  local base = KEYS[1 + ARGV[at]]
  if may_move <= 0 and not applied[base] then
    answer[#answer + 1] = 0
  else
    answer[#answer + 1] = peek(base, ARGV[at + 1], ARGV[at + 2])
  end
end
return answer
