-- A shelf holds the waiting jobs of a queue, `<base>:ready` by rank and `<base>:delayed` by start time:
--
--   <shelf>               sorted set: record -> score
--   <shelf>:ids:<bucket>  hash: the last digits of an id -> its place on the shelf (ready: the rank; delayed: "start
--                         time,rank"), for 100 neighbouring ids: so small that Redis packs it (about 8 bytes a job)
--   <shelf>:ids           sorted set of the buckets that are not empty
--
-- The buckets answer what the order by score cannot: where a job is, by its id; which is the lowest id; pages by id: see
-- bucket.lua.

-- Put jobs on a shelf. `pairs` is score, record, score, record...; `ids` and `places` have one entry for each job.
local function shelve(shelf, pairs, ids, places)
  many('ZADD', shelf, pairs)
  each_bucket(ids, function(bucket, from, to)
    local args = {}
    for n = from, to do
      args[#args + 1] = sub(ids[n], width + 1)
      args[#args + 1] = places[n]
    end
    in_bucket('HSET', shelf .. ':ids:' .. bucket, args)
    call('ZADD', shelf .. ':ids', bucket, bucket)
  end)
end

local function places_of(shelf, ids)
  local places = {}
  each_bucket(ids, function(bucket, from, to)
    local found = in_bucket('HMGET', shelf .. ':ids:' .. bucket, last_digits(ids, from, to))
    for n = from, to do
      places[n] = found[n - from + 1]
    end
  end)
  return places
end

-- The record of an id among those of its score: they are in the order of their ids, so halving finds it.
local function seek(shelf, score, id)
  local low = call('ZCOUNT', shelf, '-inf', '(' .. score)
  local high = low + call('ZCOUNT', shelf, score, score) - 1
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local record = call('ZRANGE', shelf, middle, middle)[1]
    local this = sub(record, 1, 16)
    if this == id then
      return record
    elseif this < id then
      low = middle + 1
    else
      high = middle - 1
    end
  end
end

-- Start time and rank of a delayed job. Where its place is damaged, the job is still good: it starts with rank 0.
local function split_place(place)
  local start, rank = match(place or '', '^(%d+),(.*)$')
  return start, rank and good_number(rank) and rank or '0'
end

-- The waiting job with this id: its shelf, its record and its rank. nil where it does not wait. A place without a
-- record is of no use to anybody, and forgotten.
local function waiting(base, id)
  for _, state in ipairs({'ready', 'delayed'}) do
    local shelf = base .. ':' .. state
    local place = places_of(shelf, {id})[1]
    if place then
      local score, rank = place, place
      if state == 'delayed' then
        score, rank = split_place(place)
      end
      local record = score and good_number(score) and seek(shelf, score, id)
      if record then
        return state, record, rank
      end
      unplace(shelf, {id})
    end
  end
end

-- Let a job wait, from its start time on, and wake those who sleep: for a first ready job, or a sooner start.
local function wait(base, job, rank)
  local start, record = tonumber(job.start), build(job)
  if start <= now then
    local first = call('ZCARD', base .. ':ready') == 0
    shelve(base .. ':ready', {rank, record}, {job.id}, {rank})
    if first then
      call('PUBLISH', base .. ':wake', '')
    end
  else
    shelve(base .. ':delayed', {job.start, record}, {job.id}, {job.start .. ',' .. rank})
    if call('ZRANK', base .. ':delayed', record) == 0 then
      call('PUBLISH', base .. ':wake', '')
    end
  end
end

local function unshelve(base, state, record)
  local shelf = base .. ':' .. state
  call('ZREM', shelf, record)
  unplace(shelf, {sub(record, 1, 16)})
end
