-- Writes a document, by compare and set where a version is expected.
--
-- keys:      calls, values, names, ends
-- arguments: now, call, forget, width, name, value, expected version (or empty), time to live in ms (or empty)
-- answer:    the new version, or "-found" where another one was found (0: none)
-- uses:      server once document
local name, expected, ttl = ARGV[5], ARGV[7], ARGV[8]
local earlier = once(true)
if earlier then
  return earlier
end
local last, _, _, over = read(name)
local found = last and not over and last or '0'
if expected ~= '' and expected ~= found then
  return remember('-' .. found)
end
local version = format('%d', (last or floor()) + 1)
local ends = ttl == '' and '' or format('%d', now + ttl)
call('HSET', values_key, name, version .. ',' .. ends .. '\0' .. ARGV[6])
call('ZADD', names_key, 0, name)
if ends == '' then
  call('ZREM', ends_key, name)
else
  call('ZADD', ends_key, ends, name)
end
tidy()
return remember(version)
