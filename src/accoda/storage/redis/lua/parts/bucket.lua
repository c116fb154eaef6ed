-- The buckets of a shelf (see shelf.lua): what leave.lua does not know of them; and hashes with many fields.

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
