-- What cannot be read is set aside: a dead job, with the reason, that has the bytes as its data.
local UNREADABLE = '=unreadable record: '
local ATTEMPTS = '1073741824' -- above any token that was given out: revived, it is nobody's

local function in_use(base, id)
  return call('HEXISTS', base .. ':taken', id) == 1 or waiting(base, id)
    or call('ZCOUNT', base .. ':dead', id, id) > 0 or call('ZCOUNT', base .. ':done', id, id) > 0
end

-- The key of the ids of this shard, and its number: 0 on a single server.
local function ids_of_shard()
  for n = 1, #KEYS do
    local root = match(KEYS[n], '^(.*):queues$')
    if root then
      return root .. ':ids', width < 14 and tonumber(call('HGET', root .. ':ids', 'number')) or 0
    end
  end
end

-- The id, if it is one of this shard that no other job has; else a new one.
local function free_id(base, id)
  local ids_key, number = ids_of_shard()
  local step = width == 14 and 1 or 1000
  if id and match(id, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') and id % step == number and not in_use(base, id) then
    return id
  end
  local sequence, shard = next_ids(ids_key, 1, step, number, 0, {base})
  return format('%016.0f', (sequence + 1) * step + shard)
end

-- `id` is the job's, as far as that is known. Whoever calls this removes the damaged one from where it was, first.
local function set_aside(base, raw, id, why)
  call('HDEL', base .. ':batches', '') -- first, because it is allowed on a full server (see once.lua)
  id = free_id(base, id)
  call('ZADD', base .. ':dead', id, '0,' .. id .. 'x' .. ATTEMPTS .. ',' .. whole(now) .. ',,,,,\0' .. raw)
  call('ZADD', base .. ':dead:at', now, id)
  write_notes(base, id, {worker = '', taken_at = '', ended_at = whole(now), reason = UNREADABLE .. why, result = ''})
  add_to(base .. ':meta', 'buried', 1)
  return id
end

-- A damaged record on a shelf. Another record with the same id keeps its place.
local function clear_shelf(base, state, record, why)
  local shelf, id = base .. ':' .. state, sub(record, 1, 16)
  call('ZREM', shelf, record)
  local place = places_of(shelf, {id})[1]
  if place then
    local at = place
    if state == 'delayed' then
      at = split_place(place)
    end
    if not at or not good_number(at) or not seek(shelf, at, id) then
      unplace(shelf, {id})
    end
  end
  return set_aside(base, record, id, why)
end
