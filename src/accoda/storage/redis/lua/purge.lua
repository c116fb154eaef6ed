-- Deletes jobs of a queue in one state, a piece at a time, so that the server is never busy for long.
--
-- keys:      calls, queues, base
-- arguments: now, call, forget, width, state, before (a moment, or empty), most (of this piece), ordered ("1": the oldest
--            first)
-- answer:    "how many were deleted,1 if there may be more"; only "index" where the order has to be made first (see
--            index.lua)
-- uses:      time once record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate
--
-- Those that ended are in the order of their ends in `<base>:dead:at` and `<base>:done:at`, the others in the order of
-- their ids, which grow with time.
local earlier = once(false)
if earlier then
  return earlier
end
local base, state, before, most = KEYS[3], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local ordered, PIECE = ARGV[8] == '1', 1000
most = math.min(most, PIECE)
apply_due(base)

local function answer(count, more)
  return remember(whole(count) .. ',' .. (more and 1 or 0))
end

local function forget(ids)
  for _, id in ipairs(ids) do
    call('DEL', base .. ':waiters:' .. id)
  end
  many('HDEL', base .. ':notes', ids)
  many('HDEL', base .. ':afresh', ids)
end

local function ids_of(members)
  local ids = {}
  for _, member in ipairs(members) do
    ids[#ids + 1] = match(member, '^[^,]*,(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)')
  end
  return ids
end

-- Jobs that ended, in no order.
local function purge_all_ended()
  local members = call('ZRANGE', base .. ':' .. state, 0, most - 1)
  local ids = ids_of(members)
  many('ZREM', base .. ':' .. state, members)
  many('ZREM', base .. ':' .. state .. ':at', ids)
  many('ZREM', base .. ':kept', ids)
  forget(ids)
  return answer(#members, call('EXISTS', base .. ':' .. state) == 1)
end

-- Jobs that ended, the first that ended first.
local function purge_ended()
  local index = base .. ':' .. state .. ':at'
  if call('ZCARD', base .. ':' .. state) ~= call('ZCARD', index) then
    return remember('index')
  end
  local ids = call('ZRANGEBYSCORE', index, '-inf', before and '(' .. ARGV[6] or '+inf', 'LIMIT', 0, most)
  local count = 0
  for _, id in ipairs(ids) do
    count = count + (good_number(id) and call('ZREMRANGEBYSCORE', base .. ':' .. state, id, id) or 0)
  end
  many('ZREM', index, ids)
  many('ZREM', base .. ':kept', ids)
  forget(ids)
  return answer(count, #ids == most)
end

-- Waiting jobs by id, from the oldest on.
local function purge_waiting()
  local shelf, count = base .. ':' .. state, 0
  while count < most do
    local bucket = call('ZRANGE', shelf .. ':ids', 0, 0)[1]
    if not bucket then
      return answer(count, false)
    end
    local key = shelf .. ':ids:' .. bucket
    local digits = call('TYPE', key).ok == 'hash' and call('HKEYS', key) or {}
    table.sort(digits)
    for _, each in ipairs(digits) do
      local found, record = waiting(base, bucket .. each)
      local job = found == state and parse(record)
      if count >= most or (job and before and tonumber(job.created) >= before) then
        return answer(count, count >= most)
      elseif found == state then
        unshelve(base, state, record)
        if job then
          free_key(base, job)
        end
        forget_job(base, bucket .. each)
        count = count + 1
      end
    end
    if call('ZRANGE', shelf .. ':ids', 0, 0)[1] == bucket then
      call('DEL', key)
      call('ZREM', shelf .. ':ids', bucket)
    end
  end
  return answer(count, true)
end

-- The same without an order, by records.
local function purge_shelf()
  local shelf, ids, old = base .. ':' .. state, {}, {}
  local records = call('ZRANGE', shelf, 0, most - 1)
  for n, record in ipairs(records) do
    ids[n] = sub(record, 1, 16)
    if sub(record, 17, 17) ~= 'p' then
      local job = parse(record)
      if job then
        free_key(base, job)
      end
      old[#old + 1] = ids[n]
    end
  end
  many('ZREM', shelf, records)
  unplace(shelf, ids)
  forget(old)
  return answer(#records, call('EXISTS', shelf) == 1)
end

local function purge_taken()
  local ids, count = nil, 0
  if ordered then
    ids = call('HKEYS', base .. ':taken')
    table.sort(ids)
  else
    local page = call('HSCAN', base .. ':taken', 0, 'COUNT', PIECE)[2]
    ids = {}
    for n = 1, #page, 2 do
      ids[#ids + 1] = page[n]
    end
  end
  for _, id in ipairs(ids) do
    local value = call('HGET', base .. ':taken', id)
    local batch, _, record = split_taken(value)
    local job = record and parse(record)
    if count >= most then
      return answer(count, true)
    elseif not (job and before and tonumber(job.created) >= before) then
      call('HDEL', base .. ':taken', id)
      if batch then
        release(base, batch, 1)
      end
      if job then
        free_key(base, job)
      end
      forget_job(base, id)
      count = count + 1
    end
  end
  return answer(count, not ordered and call('EXISTS', base .. ':taken') == 1)
end

if state == 'taken' then
  return purge_taken()
elseif state == 'dead' or state == 'done' then
  return ordered and purge_ended() or purge_all_ended()
elseif ordered then
  return purge_waiting()
end
return purge_shelf()
