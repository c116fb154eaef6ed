-- Those who wait for a taken job, in the order in which they joined.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, id, attempts
-- answer:    their bytes; nothing where the lease is lost
-- uses:      time record lease
local base, id = KEYS[2], ARGV[5]
local value = call('HGET', base .. ':taken', id)
if not value then
  return {}
end
local batch, attempts = match(value, '^([^,]*),[^,]*,%d+%a(%d+)')
if attempts ~= ARGV[6] or (end_of(base, batch) or 0) <= now then
  return {}
end
local found = redis.pcall('LRANGE', base .. ':waiters:' .. id, 0, -1)
return found.err and {} or found
