-- Deletes jobs of a queue in one state, a piece at a time, so that the server is never busy for long.
--
-- keys:      calls, ids, queues, outbox, base
-- arguments: now, call, forget, width, step, number, floor, run, state, before (a moment, or empty), most
-- answer:    "how many were deleted,1 if there may be more,how many were in the state," and, if reports went to the
--            outbox, the run
-- uses:      server once record placed lease rules lane turn choose line balance due job add report
--
-- The run is that of reports, see parts/report.lua; `most` are deleted in this piece. The dead, done and cancelled go in
-- the order of their ends, the others in the order of their ids.
local earlier = once(false)
if earlier then
  return earlier
end
local base, state, before, most = KEYS[5], ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11])
local set = base .. ':' .. state
Due.apply(base)
local size = state == 'taken' and call('HLEN', set) or call('ZCARD', set)

local function ended()
  local records = call('ZRANGEBYSCORE', set, '-inf', before and '(' .. ARGV[10] or '+inf', 'LIMIT', 0, most)
  local ids = Due.ids_of(records)
  Placed.remove(base, state, ids, records)
  for _, id in ipairs(ids) do
    call('DEL', base .. ':waiters:' .. id)
  end
  many('ZREM', base .. ':kept', ids)
  for _, record in ipairs(records) do
    Report.removed(state, record)
  end
  return #records, #records == most
end

-- One job goes, unless it is too young: then so are all that follow.
local function delete(id, record, batch)
  local job = Record.parse(record)
  if job and before and tonumber(job.created) >= before then
    return false
  end
  Report.removed(state, record)
  Job.remove(base, id, state, record, batch)
  return true
end

local function taken()
  local ids = call('HKEYS', set)
  table.sort(ids)
  for n, id in ipairs(ids) do
    local value = call('HGET', set, id)
    local batch, record = Lease.split(value)
    if n > most or not delete(id, record or value, batch or '') then
      return n - 1, n > most
    end
  end
  return #ids, false
end

-- Ids without a record are left over from damage: unplaced, they come no second time.
local function waiting()
  local ids, count = Placed.ids_from(base, state, '', most), 0
  for n = 1, math.min(#ids, most) do
    local record = Placed.find(base, state, ids[n])
    if not record then
      Placed.unindex(base, state, {ids[n]})
    elseif not delete(ids[n], record) then
      return count, false
    else
      count = count + 1
    end
  end
  return count, #ids >= most
end

local count, more
if state == 'taken' then
  count, more = taken()
elseif ENDED[state] then
  count, more = ended()
else
  count, more = waiting()
end
local reported = Report.send({}, {}, {})
Lane.balance()
return remember(table.concat({format('%d', count), more and 1 or 0, format('%d', size), reported}, ','))
