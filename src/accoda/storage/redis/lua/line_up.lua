-- Stores plain jobs of one queue, all of them, in order: no key, ready at once, nothing to keep. That is nearly every
-- `enqueue`, so it does no more than these need; other jobs are for enqueue.lua.
--
-- keys:      calls, ids, queues, base
-- arguments: now, call, forget, width, step, number, floor, name, cost (or empty), rank (of all, or empty), then the data
--            of each job, with its rank before it where there is none of all
-- answer:    the first id; the others follow it
-- uses:      time once
-- later:     record leave ids grow
--
-- The first write is one that a full server refuses (see once.lua). Numbers are given to the server as texts: see take.lua.
local base, shelf = KEYS[4], KEYS[4] .. ':ready'
local earlier = call('HGET', KEYS[1], ARGV[2])
if earlier then
  return earlier
end
local width, step, common = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[10] ~= '' and ARGV[10]
local each = common and 1 or 2
local count, places = (#ARGV - 10) / each, shelf .. ':ids'
-- A key of another type shows here, before anything is changed; that of the places further below, where they come first.
local before = call('ZCARD', shelf)
call('SADD', KEYS[3], ARGV[8])
local format, sequence, number = string.format, nil, 0
local last = step == 1 and redis.pcall('HINCRBY', KEYS[2], 'last', format('%d', count))
if type(last) == 'number' and last > count and last - count >= tonumber(ARGV[7]) then
  sequence = last - count
else -- a Cluster, a new counter, or a damaged one
  if type(last) == 'number' then
    call('HINCRBY', KEYS[2], 'last', -count)
  end
  sequence, number = rest().next_ids(KEYS[2], count, step, tonumber(ARGV[6]), tonumber(ARGV[7]), {base})
end
local head = 'p0,' .. format('%d', now) .. ',,,' .. ARGV[9] .. ',,\0'
local first = format('%016d', (sequence + 1) * step + number)
local at, n, digits_of = 11, 1, '%0' .. 16 - width .. 'd'
-- Bucket by bucket (see shelf.lua): the ids of a bucket share their leading digits, which are written once.
while n <= count do
  local bucket = string.sub(n == 1 and first or format('%016d', (sequence + n) * step + number), 1, width)
  local pairs, digits, size = {}, {}, 0
  for this = (sequence + n) % 100, math.min(99, (sequence + n) % 100 + count - n) do
    local last_digits = format(digits_of, this * step + number)
    local rank = common or ARGV[at]
    pairs[size + 1], pairs[size + 2] = rank, bucket .. last_digits .. head .. ARGV[at + each - 1]
    digits[size + 1], digits[size + 2] = last_digits, rank
    size, at, n = size + 2, at + each, n + 1
  end
  call('ZADD', places, bucket, bucket)
  call('ZADD', shelf, unpack(pairs))
  local key = places .. ':' .. bucket
  if type(redis.pcall('HSET', key, unpack(digits))) == 'table' then
    call('DEL', key) -- something else lay there
    call('HSET', key, unpack(digits))
  end
end
if before >= 1048576 and math.frexp(before) < 0.75 then -- a million; and up to half above a power of two
  rest().grow(shelf, count)
end
if before == 0 then
  -- Who hears a number need not look whether there is something to take, unless he has looked since: see wakes.py.
  local paused = redis.pcall('HGET', base .. ':meta', 'paused')
  call('PUBLISH', base .. ':wake', paused and '' or format('%d', sequence + count))
end
call('HSET', KEYS[1], ARGV[2], first)
if ARGV[3] ~= '' then
  forget()
  live_on()
end
return first
