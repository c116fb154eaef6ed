-- Jobs leave the buckets of a shelf (see shelf.lua), and commands with many arguments. Every take needs these, so they are
-- few: what else concerns buckets is in bucket.lua.
--
-- ARGV[4] is how many leading digits of an id name its bucket.
local sub = string.sub
local width = tonumber(ARGV[4])
local CHUNK = 4000 -- arguments of one command; Lua's stack ends at 8000
local FULL = 100 -- ids of one bucket: two digits, and in a Cluster the shard's number, which they share
local MANY = 16 -- of a bucket: from here on it is worth asking whether they are all of it

-- A command with however many arguments; the sum of what it answers.
local function many(command, key, args)
  local size = #args
  if size <= CHUNK then
    return size > 0 and call(command, key, unpack(args)) or 0
  end
  local sum = 0
  for from = 1, size, CHUNK do
    sum = sum + call(command, key, unpack(args, from, math.min(from + CHUNK - 1, size)))
  end
  return sum
end

-- Take these from a bucket; whether it is empty then. Ids are never used twice, so a hundred are all that a bucket can ever
-- hold: it goes as a whole, at a tenth of the cost. So do the last ones of it: as many as it has. (Where a damaged bucket
-- has as many but others, those lose their places, not more: they are taken as ever, but not found by their ids.)
local function empty_bucket(key, digits)
  local size = #digits
  if size >= MANY and (size == FULL or redis.pcall('HLEN', key) == size) then
    call('DEL', key)
    return true
  end
  if type(redis.pcall('HDEL', key, unpack(digits))) == 'table' then
    call('DEL', key) -- something else lay there; a bucket is a help for finding, not the job
  end
  return call('EXISTS', key) == 0
end

-- Forget the places of jobs that are no longer on the shelf.
local function unplace(shelf, ids)
  local size, from = #ids, 1
  local places = shelf .. ':ids'
  while from <= size do
    local bucket, digits, count = sub(ids[from], 1, width), {}, 0
    repeat
      count = count + 1
      digits[count] = sub(ids[from], width + 1)
      from = from + 1
    until from > size or sub(ids[from], 1, width) ~= bucket
    if empty_bucket(places .. ':' .. bucket, digits) then
      call('ZREM', places, bucket)
    end
  end
end

