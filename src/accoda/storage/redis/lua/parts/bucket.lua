-- The buckets of a shelf (see shelf.lua), and commands with many arguments.
--
-- ARGV[4] is how many leading digits of an id name its bucket.
local sub = string.sub
local width = tonumber(ARGV[4])
local CHUNK = 4000 -- arguments of one command; Lua's stack ends at 8000
local FULL = 100 -- ids of one bucket: two digits, and in a Cluster the shard's number, which they share

-- A command with however many arguments; the sum of what it answers.
local function many(command, key, args)
  local sum = 0
  for from = 1, #args, CHUNK do
    sum = sum + call(command, key, unpack(args, from, math.min(from + CHUNK - 1, #args)))
  end
  return sum
end

-- The values of these fields of a hash, however many.
local function values_of(key, fields)
  local values = {}
  for from = 1, #fields, CHUNK do
    local to = math.min(from + CHUNK - 1, #fields)
    local found = call('HMGET', key, unpack(fields, from, to))
    for n = from, to do
      values[n] = found[n - from + 1]
    end
  end
  return values
end

-- For each run of neighbours, ids[from] to ids[to], that share a bucket.
local function each_bucket(ids, act)
  local bucket, from = nil, 1
  for n = 1, #ids do
    local this = sub(ids[n], 1, width)
    if this ~= bucket then
      if bucket then
        act(bucket, from, n - 1)
      end
      bucket, from = this, n
    end
  end
  if bucket then
    act(bucket, from, #ids)
  end
end

local function last_digits(ids, from, to)
  local digits = {}
  for n = from, to do
    digits[n - from + 1] = sub(ids[n], width + 1)
  end
  return digits
end

-- A bucket is a help for finding, not the job: where something else lies under its name, it is thrown away.
local function in_bucket(command, key, args)
  local reply = redis.pcall(command, key, unpack(args))
  if type(reply) == 'table' and reply.err then
    call('DEL', key)
    return command == 'HMGET' and {} or call(command, key, unpack(args))
  end
  return reply
end

-- Forget the places of jobs that are no longer on the shelf. Ids are never used twice, so those of a bucket that are a
-- hundred are all that it can ever hold: it goes as a whole, at a tenth of the cost.
local function unplace(shelf, ids)
  each_bucket(ids, function(bucket, from, to)
    local key = shelf .. ':ids:' .. bucket
    if to - from + 1 == FULL then
      call('DEL', key)
    else
      in_bucket('HDEL', key, last_digits(ids, from, to))
    end
    if call('EXISTS', key) == 0 then
      call('ZREM', shelf .. ':ids', bucket)
    end
  end)
end

