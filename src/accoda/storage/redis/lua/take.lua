-- Leases the first ready jobs of a queue to one taker.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, batch, count, lease (ms), max_cost (or empty), worker
-- answer:    the records, then the numbers of waiters as "place:count" with commas, counted from 0, and the moment of
--            the take
-- uses:      server record placed lease rules lane turn choose line balance due job
--
-- The batch's name is the caller's own: a take whose reply was lost is sent again and finds its batch.
local base, batch, count, max_cost = KEYS[2], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[8])

-- How many of the first jobs may be had for max_cost. The head is never skipped for a cheaper job behind it.
local function affordable(records)
  local left = max_cost
  for n = 1, #records do
    local job = Record.parse(records[n])
    left = left - (job and tonumber(job.cost) or 0)
    if left < 0 then
      return n - 1
    end
  end
  return #records
end

-- What a take of this batch gave that is still held, and its moment.
local function given_before()
  local _, values = Due.held_by(base, batch, (Lease.batch_of(base, batch)))
  local records, taken_at = {}, ''
  for _, value in ipairs(values) do
    local name, record, at = Lease.split(value)
    if name == batch then
      records[#records + 1], taken_at = record, at
    end
  end
  return records, taken_at
end

local function first_ready(count)
  local records = call('ZRANGE', base .. ':ready', '0', format('%d', count - 1))
  for n = #records, 1 + (max_cost and affordable(records) or #records), -1 do
    records[n] = nil
  end
  return records
end

-- The ids of records, what is stored for each while it is taken, and the waiters. What is no record is taken under all
-- its bytes, so that it is not mistaken for the job whose id it may begin with; the client cannot read it and buries
-- it.
-- Those that have lanes are counted.
local ids, held, waiters, laned = {}, {}, {}, {}
local function read_heads(records)
  local prefix = batch .. ',' .. moment .. ','
  for n = 1, #records do
    local record = records[n]
    local id, _, _, lane, key = Record.head_of(record)
    if id then
      ids[#ids + 1] = id
      if key ~= '' then
        waiters[#waiters + 1] = n - 1 .. ':' .. Job.waiters_of(base, id)
      end
      if lane ~= '' then
        laned[lane] = (laned[lane] or 0) + 1
      end
    end
    held[2 * n - 1], held[2 * n] = id or record, prefix .. record
  end
end

-- Whether one of the jobs is of a lane that has more in the line and running than its limit. That is so only until
-- `set_lanes` has come to the end of the lane; then their lanes are to be balanced.
local function is_over()
  if not Rules.of(base).is_unbalanced or not next(laned) then
    return false
  end
  for lane in pairs(laned) do
    Lane.touch_mixed(base, lane)
  end
  local sides, lanes = Lane.sides(base)
  for n = 1, #lanes do
    if Lane.room(sides, n) < 0 then
      return true
    end
  end
  for _, step in ipairs(sides) do
    steps[step.base] = nil
  end
  return false
end

local records, taken_at = nil, moment
local again = call('HEXISTS', base .. ':batches', batch) == 1
if again and Lease.end_of(base, batch) > now then
  records, taken_at = given_before()
  read_heads(records)
else
  for _, each in ipairs(Rules.group(base)) do -- a place in a lane may be free by what is due in another queue
    Due.apply(each)
    Lane.balance()
  end
  local till, free = Rules.gate(base)
  -- Sent again when its lease is over, it is a take like any other, if all that it was given is back in the line. Else
  -- its name is still in use and it gives nothing: a lease that has ended is not handed out.
  if count == 0 or till or free == 0 or (again and call('HEXISTS', base .. ':batches', batch) == 1) then
    return {'', ''}
  end
  records = first_ready(math.min(count, free or count))
  local size = #records
  if size == 0 then
    return {'', ''}
  end
  read_heads(records)
  if is_over() then
    Lease.unlock(base)
    Lane.balance()
    return {'', ''}
  end
  -- No other taker can have them: a script is one step for the server. The new place is written first, so that nothing
  -- is lost should a command fail.
  Lease.unlock(base)
  local joined = #ids == size and table.concat(ids) or '?'
  Lease.give(base, batch, format('%d', now + ARGV[7]), joined .. ',' .. ARGV[9], held)
  call('ZREMRANGEBYRANK', base .. ':ready', '0', format('%d', size - 1))
  Placed.unindex(base, 'ready', ids)
  if #ids == size then -- else all of them are left to the mending, which the client asks for
    Lane.take(base, laned)
  end
end
records[#records + 1] = table.concat(waiters, ',')
records[#records + 1] = taken_at
return records
