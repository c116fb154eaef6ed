-- Jobs that are not taken. For each of the states ready, delayed, held, dead, done and cancelled:
--
--   <base>:<state>               sorted set: record -> rank (ready; where lanes take turns: turn), start_time (delayed),
--                                ended_at (the others)
--   <base>:<state>:ids:<bucket>  hash: the last digits of an id -> the score of its record, for 100 neighbouring ids.
--                                Redis packs so small a hash: about 8 bytes a job
--   <base>:<state>:ids           sorted set of the buckets that are not empty
--
-- Of a held job the bucket has the record, and the sorted set its id and its rank: it comes into the line by its id.
--
-- The order by score is what `take` needs. The buckets answer what it cannot: where a job is, by its id; which id is
-- the lowest; pages by id. In the order of one score records are in the order of their ids, so halving finds one.
local Placed = {}
local width = tonumber(ARGV[4]) -- how many leading digits of an id name its bucket

-- Calls `act(bucket, from, to)` for each run of neighbours, ids[from] to ids[to], that share a bucket.
function Placed.each_bucket(ids, act)
  local size, from = #ids, 1
  while from <= size do
    local bucket, to = sub(ids[from], 1, width), from
    while to < size and sub(ids[to + 1], 1, width) == bucket do
      to = to + 1
    end
    act(bucket, from, to)
    from = to + 1
  end
end

-- Put jobs into a state. `scored` is score, record, score, record...
function Placed.add(base, state, ids, scored)
  local set, value = base .. ':' .. state, -1 -- what the index has of a job: its score
  if state == 'held' then
    local ranked = {}
    for n, id in ipairs(ids) do
      ranked[2 * n - 1], ranked[2 * n] = scored[2 * n - 1], id
    end
    many('ZADD', set, ranked)
    value = 0 -- its record
  else
    many('ZADD', set, scored)
  end
  Placed.each_bucket(ids, function(bucket, from, to)
    local fields = {}
    for n = from, to do
      fields[#fields + 1] = sub(ids[n], width + 1)
      fields[#fields + 1] = scored[2 * n + value]
    end
    call('HSET', set .. ':ids:' .. bucket, unpack(fields))
    call('ZADD', set .. ':ids', bucket, bucket)
  end)
end

-- The last digits of the ids of a run.
local function digits_in(ids, from, to)
  local digits = {}
  for n = from, to do
    digits[n - from + 1] = sub(ids[n], width + 1)
  end
  return digits
end

-- Take ids out of the index of a state. A bucket of which all go is deleted as a whole, at a tenth of the cost.
function Placed.unindex(base, state, ids)
  local index = base .. ':' .. state .. ':ids'
  Placed.each_bucket(ids, function(bucket, from, to)
    local key = index .. ':' .. bucket
    local left = call('HLEN', key) - (to - from + 1)
    if left == 0 then
      call('DEL', key)
    else
      call('HDEL', key, unpack(digits_in(ids, from, to)))
    end
    if left <= 0 then
      call('ZREM', index, bucket)
    end
  end)
end

-- Take records out of a state; `ids` are theirs.
function Placed.remove(base, state, ids, records)
  many('ZREM', base .. ':' .. state, state == 'held' and ids or records)
  Placed.unindex(base, state, ids)
end

-- How many records come before this score and id in the order of a set.
function Placed.count_before(set, score, id)
  local low = call('ZCOUNT', set, '-inf', '(' .. score)
  local high = low + call('ZCOUNT', set, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sub(call('ZRANGE', set, middle, middle)[1], 1, #id) < id then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- What the index has of an id in a state: its score, of a held one its record; false where it is not there.
function Placed.score_of(base, state, id)
  return call('HGET', base .. ':' .. state .. ':ids:' .. sub(id, 1, width), sub(id, width + 1))
end

-- The record of an id in a state, and its score (not of a held one: that is its rank). An index that is damaged, or does
-- not fit, gives nothing.
function Placed.find(base, state, id)
  local set, score = base .. ':' .. state, Placed.score_of(base, state, id)
  if not score then
    return
  elseif state == 'held' then
    return score
  end
  local ok, at = pcall(Placed.count_before, set, score, id)
  local record = ok and call('ZRANGE', set, at, at)[1]
  if record and Record.head_of(record) == id then
    return record, score
  end
end

-- The records of held jobs; false where there is none.
function Placed.held_records(base, ids)
  local found = {}
  Placed.each_bucket(ids, function(bucket, from, to)
    local records = call('HMGET', base .. ':held:ids:' .. bucket, unpack(digits_in(ids, from, to)))
    for n = from, to do
      found[n] = records[n - from + 1]
    end
  end)
  return found
end

-- The ids of a state in their order, from the first one that is not below `from`, at least `count` of them if there are
-- so many. A bucket that holds nothing is forgotten.
function Placed.ids_from(base, state, from, count)
  local index, ids = base .. ':' .. state .. ':ids', {}
  for _, bucket in ipairs(call('ZRANGEBYSCORE', index, sub(from, 1, width), '+inf', 'LIMIT', 0, count + 1)) do
    local digits = call('HKEYS', index .. ':' .. bucket)
    if #digits == 0 then
      call('ZREM', index, bucket)
    end
    table.sort(digits)
    for _, each in ipairs(digits) do
      if bucket .. each >= from then
        ids[#ids + 1] = bucket .. each
      end
    end
    if #ids >= count then
      break
    end
  end
  return ids
end
