-- What is due by now: delayed jobs start, ended leases come back.
local function start_delayed(base)
  local ready, delayed = base .. ':ready', base .. ':delayed'
  while true do
    local records = call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, 1000)
    if #records == 0 then
      return
    end
    local pairs, ids, ranks = {}, {}, {}
    for n = 1, #records do
      ids[n] = sub(records[n], 1, 16)
    end
    local places = places_of(delayed, ids)
    for n = 1, #records do
      local _, rank = split_place(places[n])
      ranks[n] = rank
      pairs[2 * n - 1], pairs[2 * n] = rank, records[n]
    end
    call('ZREMRANGEBYRANK', delayed, 0, #records - 1)
    unplace(delayed, ids)
    shelve(ready, pairs, ids, ranks)
  end
end

local function end_lease(base, batch)
  local taken_at, joined, worker = batch_of(base, batch)
  call('HDEL', base .. ':batches', batch, batch .. '#') -- first, because it is allowed on a full server (see once.lua)
  call('ZREM', base .. ':ends', batch)
  local ids, pairs, back, ranks = {}, {}, {}, {}
  for id in string.gmatch(joined, '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') do
    ids[#ids + 1] = id
  end
  for from = 1, #ids, CHUNK do
    local to = math.min(from + CHUNK - 1, #ids)
    local values = call('HMGET', base .. ':taken', unpack(ids, from, to))
    for n = from, to do
      local value = values[n - from + 1]
      local held, rank, record
      if value then
        held, rank, record = split_taken(value)
      end
      if held == batch then
        local job = parse(record)
        give_back(job, now)
        local notes = notes_of(base, job.id)
        notes.taken_at, notes.worker = taken_at, '=' .. worker
        write_notes(base, job.id, notes)
        back[#back + 1], ranks[#ranks + 1] = job.id, rank
        pairs[#pairs + 1] = rank
        pairs[#pairs + 1] = build(job)
      end
    end
  end
  many('HDEL', base .. ':taken', back)
  if #back > 0 then
    shelve(base .. ':ready', pairs, back, ranks)
    call('HINCRBY', base .. ':meta', 'expired', #back)
    count_crashes(base, back)
  end
end

local function apply_due(base)
  local first = call('ZRANGE', base .. ':delayed', 0, 0, 'WITHSCORES')[2]
  if first and tonumber(first) <= now then
    start_delayed(base)
  end
  first = call('ZRANGE', base .. ':ends', 0, 0, 'WITHSCORES')[2]
  if first and tonumber(first) <= now then
    for _, batch in ipairs(call('ZRANGEBYSCORE', base .. ':ends', '-inf', now)) do
      end_lease(base, batch)
    end
  end
end

local function paused(base)
  local till = call('HGET', base .. ':meta', 'paused')
  return till and (till == '' or tonumber(till) > now) and till
end
