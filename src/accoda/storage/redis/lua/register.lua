-- The number of a shard of a Cluster: given once, on first use. The wanted one, or the next that is free.
--
-- keys:      shards (a hash: tag -> number)
-- arguments: now, call, forget, width, tag, wish, the highest number
-- answer:    the number, or 0 if all are given
-- uses:      server
local number = call('HGET', KEYS[1], ARGV[5])
if tonumber(number) then
  return tonumber(number)
end
local given, count, highest = {}, 0, tonumber(ARGV[7])
for _, each in ipairs(call('HVALS', KEYS[1])) do
  given[tonumber(each) or 0] = true -- 0: damaged
  count = count + 1
end
if count >= highest then
  return 0
end
number = tonumber(ARGV[6])
while given[number] do
  number = number % highest + 1
end
call('HSET', KEYS[1], ARGV[5], number)
return number
