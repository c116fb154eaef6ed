-- A take that is not the usual one: sent again, with a cost, or of jobs that are not plain, not readable, or only now due.
local function taken_before(base, batch)
  local _, joined = batch_of(base, batch)
  local records, ranks = {}, {}
  for id in string.gmatch(joined or '', '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') do
    local value = call('HGET', base .. ':taken', id)
    local held, rank, record
    if value then
      held, rank, record = split_taken(value)
    end
    if held == batch then
      records[#records + 1], ranks[#ranks + 1] = record, rank
    end
  end
  return records, ranks
end

-- How many of the found jobs may be had for max_cost. The head is never skipped for a cheaper job behind it.
local function affordable(records, max_cost)
  local left = max_cost
  for n = 1, #records do
    local cost = match(records[n], '^%d+%a%d+,%d+,%d*,%d*,(%d*)')
    left = left - (tonumber(cost) or 0)
    if left < 0 then
      return n - 1
    end
  end
  return #records
end

-- Two records with one id: the first that can be read is the job, the other is set aside. What is left of the found ones.
local function without_doubles(base, records, ids, ranks, held)
  local chosen, sound_one = {}, {}
  local left, unique, left_ranks = {}, {}, {}
  for n = 1, #ids do
    local id, readable = ids[n], parse(records[n]) and true or false
    if not chosen[id] or (readable and not sound_one[id]) then
      chosen[id], sound_one[id] = n, readable
    end
  end
  for n = 1, #ids do
    local id = ids[n]
    if chosen[id] ~= n then
      rest().set_aside(base, records[n], id, 'a second job with the id ' .. id)
    else
      local place = #unique + 1
      unique[place], left[place] = id, records[n]
      left_ranks[place] = type(ranks) == 'string' and ranks or ranks[n]
      call('HSET', base .. ':taken', id, held[2 * n])
    end
  end
  return left, unique, left_ranks
end

-- Of the jobs that came back, those that crashed or began afresh.
local function afresh_text(base, ids, places)
  local texts, entries = {}, afresh_of(base, ids)
  for n = 1, #ids do
    if entries[n] then
      texts[#texts + 1] = places[n] .. ':' .. string.gsub(entries[n], ',', ':')
    end
  end
  return #texts > 0 and ';' .. table.concat(texts, ',') or ''
end

-- The answer ends with the ranks and what the records do not hold. A plain job has nothing of it, so for it nobody looks.
local function with_rest(base, records, ranks)
  local waiters, ids, places = {}, {}, {}
  for n = 1, #records do
    local record = records[n]
    if sub(record, 17, 17) == 'x' then
      local id, place = sub(record, 1, 16), n - 1
      local number = waiters_of(base, id)
      if number > 0 then
        waiters[#waiters + 1] = place .. ':' .. number
      end
      if sub(record, 18, 18) ~= '0' then -- attempts
        ids[#ids + 1], places[#places + 1] = id, place
      end
    end
  end
  local size = #records
  records[size + 1] = table.concat(ranks, ',')
  records[size + 2] = table.concat(waiters, ',') .. afresh_text(base, ids, places)
  return records
end

local function is_good(record, rank)
  local plain = sub(record, 17, 19) == 'p0,' and sub(record, 33, 38) == ',,,,,\0' -- as in take.lua
  return rank ~= 'inf' and rank ~= '-inf' and (plain or parse(record))
end

-- The first ready jobs with their ranks, up to one that cannot be read and may not be moved by this call. What cannot be
-- read before that is set aside.
local function first_ready(base, count)
  while true do
    local found, bad = call('ZRANGE', base .. ':ready', 0, count - 1, 'WITHSCORES'), 0
    local records, ids, ranks = {}, {}, {}
    for n = 1, #found, 2 do
      local record, rank = found[n], found[n + 1]
      if is_good(record, rank) then
        local place = #ids + 1
        records[place], ids[place], ranks[place] = record, sub(record, 1, 16), rank
      elseif may_move <= 0 then
        return records, ids, ranks
      else
        rest().clear_shelf(base, 'ready', record, 'a ready job')
        may_move, bad = may_move - 1, bad + 1
      end
    end
    if bad == 0 then
      return records, ids, ranks
    end
  end
end

local function take_any(base, batch, count, max_cost)
  local again = call('HEXISTS', base .. ':batches', batch) == 1
  if again and (tonumber(call('ZSCORE', base .. ':ends', batch)) or 0) > now then
    return with_rest(base, taken_before(base, batch))
  end
  apply_due(base)
  -- Sent again when its lease is over, it is a take like any other, if all that it had been given is back in the line. Else
  -- its name is still in use: it gives nothing. A lease that has ended is handed out to nobody.
  if again and call('HEXISTS', base .. ':batches', batch) == 1 then
    return {'', ''}
  end
  if count == 0 or paused(base) then
    return {'', ''}
  end
  local records, ids, ranks = first_ready(base, count)
  local size = max_cost and affordable(records, max_cost) or #ids
  for n = #ids, size + 1, -1 do
    records[n], ids[n], ranks[n] = nil, nil, nil
  end
  if size > 0 then
    records, ranks = hand_out(base, batch, records, ids, ranks)
  end
  return with_rest(base, records, ranks)
end
