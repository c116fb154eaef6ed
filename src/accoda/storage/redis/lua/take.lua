-- Leases the first ready jobs of a queue to one taker.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, batch, count, lease (ms), max_cost (or empty), worker
-- answer:    record, rank, record, rank ..., and last the waiters as "place:count" with commas; where jobs crashed or
--            began afresh, there follow ';' and those as "place:fresh_at:crashes" with commas
-- uses:      time record shelf notes lease due
--
-- The batch's name is the caller's own: a take whose reply was lost is sent again and finds its batch.
local base, batch, count, max_cost = KEYS[2], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[8])

local function taken_before()
  local _, joined = batch_of(base, batch)
  local answer = {}
  for id in string.gmatch(joined, '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') do
    local value = call('HGET', base .. ':taken', id)
    local held, rank, record
    if value then
      held, rank, record = split_taken(value)
    end
    if held == batch then
      answer[#answer + 1] = record
      answer[#answer + 1] = rank
    end
  end
  return answer
end

-- How many of the found jobs may be had for max_cost. The head is never skipped for a cheaper job behind it.
local function affordable(found)
  local left = max_cost
  for n = 1, #found, 2 do
    local cost = match(found[n], '^%d+%a%d+,%d+,%d*,%d*,(%d*)')
    left = left - (tonumber(cost) or 0)
    if left < 0 then
      return (n - 1) / 2
    end
  end
  return #found / 2
end

local function lease_out(found, size)
  local ids, held = {}, {}
  for n = 1, size do
    local record = found[2 * n - 1]
    local id = sub(record, 1, 16)
    ids[n] = id
    held[2 * n - 1] = id
    held[2 * n] = batch .. ',' .. found[2 * n] .. ',' .. record
  end
  -- No other taker can have them: a script is one step for the server.
  call('ZREMRANGEBYRANK', base .. ':ready', 0, size - 1)
  unplace(base .. ':ready', ids)
  many('HSET', base .. ':taken', held)
  call('ZADD', base .. ':ends', now + ARGV[7], batch)
  call('HSET', base .. ':batches', batch, whole(now) .. ',' .. table.concat(ids) .. ',' .. ARGV[9], batch .. '#', size)
end

-- Of the jobs that came back, those that crashed or began afresh.
local function afresh_text(ids, places)
  local texts, entries = {}, afresh_of(base, ids)
  for n = 1, #ids do
    if entries[n] then
      texts[#texts + 1] = places[n] .. ':' .. string.gsub(entries[n], ',', ':')
    end
  end
  return #texts > 0 and ';' .. table.concat(texts, ',') or ''
end

-- The answer ends with what the records do not hold. A plain job has nothing of it, so for it nobody looks.
local function with_rest(found)
  local waiters, ids, places = {}, {}, {}
  for n = 1, #found, 2 do
    local record = found[n]
    if sub(record, 17, 17) == 'x' then
      local id, place = sub(record, 1, 16), (n - 1) / 2
      local number = call('LLEN', base .. ':waiters:' .. id)
      if number > 0 then
        waiters[#waiters + 1] = place .. ':' .. number
      end
      if sub(record, 18, 18) ~= '0' then -- attempts
        ids[#ids + 1], places[#places + 1] = id, place
      end
    end
  end
  found[#found + 1] = table.concat(waiters, ',') .. afresh_text(ids, places)
  return found
end

if call('HEXISTS', base .. ':batches', batch) == 1 then
  return with_rest(taken_before())
end
apply_due(base)
if count == 0 or paused(base) then
  return {''}
end
local found = call('ZRANGE', base .. ':ready', 0, count - 1, 'WITHSCORES')
local size = #found / 2
if max_cost then
  size = affordable(found)
  found = {unpack(found, 1, 2 * size)}
end
if size > 0 then
  lease_out(found, size)
end
return with_rest(found)
