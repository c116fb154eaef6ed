-- Leases the first ready jobs of a queue to one taker.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, batch, count, lease (ms), max_cost (or empty), worker
-- answer:    record, rank, record, rank ..., and last the waiters as "place:count" with commas; where jobs crashed or
--            began afresh, there follow ';' and those as "place:fresh_at:crashes" with commas
-- uses:      time record shelf notes lease kept due
-- later:     ids aside moves
--
-- The batch's name is the caller's own: a take whose reply was lost is sent again and finds its batch.
local base, batch, count, max_cost = KEYS[2], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[8])

local function taken_before()
  local _, joined = batch_of(base, batch)
  local answer = {}
  for id in string.gmatch(joined or '', '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') do
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
local function affordable(found, size)
  local left = max_cost
  for n = 1, size do
    local cost = match(found[2 * n - 1], '^%d+%a%d+,%d+,%d*,%d*,(%d*)')
    left = left - (tonumber(cost) or 0)
    if left < 0 then
      return n - 1
    end
  end
  return size
end

-- Two records with one id: the first that can be read is the job, the other is set aside. What is left of the found ones.
local function without_doubles(found, ids, held)
  local chosen, sound_one, left, unique = {}, {}, {}, {}
  for n = 1, #ids do
    local id, readable = ids[n], parse(found[2 * n - 1]) and true or false
    if not chosen[id] or (readable and not sound_one[id]) then
      chosen[id], sound_one[id] = n, readable
    end
  end
  for n = 1, #ids do
    local id = ids[n]
    if chosen[id] ~= n then
      rest().set_aside(base, found[2 * n - 1], id, 'a second job with the id ' .. id)
    else
      unique[#unique + 1] = id
      left[#left + 1], left[#left + 2] = found[2 * n - 1], found[2 * n]
      call('HSET', base .. ':taken', id, held[2 * n])
    end
  end
  return left, unique
end

local function lease_out(found, ids)
  local held, size = {}, #ids
  for n = 1, size do
    held[2 * n - 1] = ids[n]
    held[2 * n] = batch .. ',' .. found[2 * n] .. ',' .. found[2 * n - 1]
  end
  -- No other taker can have them: a script is one step for the server. The new place is written first, so that nothing is
  -- lost should a command fail, as it does where a key is of another type.
  unlock(base)
  if many('HSET', base .. ':taken', held) < size then
    found, ids = without_doubles(found, ids, held)
  end
  call('ZADD', base .. ':ends', now + ARGV[7], batch)
  call('HSET', base .. ':batches', batch, whole(now) .. ',' .. table.concat(ids) .. ',' .. ARGV[9], batch .. '#', #ids)
  call('ZREMRANGEBYRANK', base .. ':ready', 0, size - 1)
  unplace(base .. ':ready', ids)
  return found
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
      local number = waiters_of(base, id)
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

-- The ids of the found jobs; where one cannot be read, nothing. A plain job of today is known by where its commas are,
-- which takes a tenth of the time of a look at every field; what such a look would find, the client finds (see
-- aside.lua). Second, whether all are plain. The ranks are in order, so one that is infinite is the first or the last.
local PLAIN, REST = 'p0,', ',,,,,\0'
local function ids_of(found)
  local ids, size, plain = {}, 0, true
  if found[2] == '-inf' or found[#found] == 'inf' then
    return nil
  end
  for n = 1, #found, 2 do
    local record = found[n]
    if sub(record, 17, 19) ~= PLAIN or sub(record, 33, 38) ~= REST then
      plain = false
      if not parse(record) then
        return nil
      end
    end
    size = size + 1
    ids[size] = sub(record, 1, 16)
  end
  return ids, plain
end

-- Sets aside what cannot be read, as many as may be moved in one call. What is good before the first that is left.
local function set_bad_aside(found)
  local good = {}
  for n = 1, #found, 2 do
    local record, rank = found[n], found[n + 1]
    if rank ~= 'inf' and rank ~= '-inf' and parse(record) then
      good[#good + 1], good[#good + 2] = record, rank
    elseif may_move <= 0 then
      return good
    else
      rest().clear_shelf(base, 'ready', record, 'a ready job')
      may_move = may_move - 1
    end
  end
end

-- The first ready jobs, their ids, and whether all are plain.
local function first_ready()
  while true do
    local found = call('ZRANGE', base .. ':ready', 0, count - 1, 'WITHSCORES')
    local ids, plain = ids_of(found)
    if not ids then
      found = set_bad_aside(found)
      if found then
        ids, plain = ids_of(found)
      end
    end
    if ids then
      return found, ids, plain
    end
  end
end

local again = call('HEXISTS', base .. ':batches', batch) == 1
if again and (tonumber(call('ZSCORE', base .. ':ends', batch)) or 0) > now then
  return with_rest(taken_before())
end
apply_due(base)
-- Sent again when its lease is over, it is a take like any other, if all that it had been given is back in the line. Else
-- its name is still in use: it gives nothing. A lease that has ended is handed out to nobody.
if again and call('HEXISTS', base .. ':batches', batch) == 1 then
  return {''}
end
if count == 0 or paused(base) then
  return {''}
end
local found, ids, plain = first_ready()
local size = max_cost and affordable(found, #ids) or #ids
for n = #ids, size + 1, -1 do
  ids[n] = nil
end
for n = #found, 2 * size + 1, -1 do
  found[n] = nil
end
if size > 0 then
  found = lease_out(found, ids)
end
if plain then
  found[#found + 1] = ''
  return found
end
return with_rest(found)
