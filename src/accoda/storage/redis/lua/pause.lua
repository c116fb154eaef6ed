-- Hands out no jobs of a queue until a moment; one that has gone resumes it.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, name, until (a moment, or empty: until it is resumed)
-- answer:    1
-- uses:      server
call('HDEL', KEYS[2] .. ':meta', 'paused') -- first, because it is allowed on a full server (see parts/once.lua)
if ARGV[6] == '' or tonumber(ARGV[6]) > now then
  call('SADD', KEYS[1], ARGV[5])
  call('HSET', KEYS[2] .. ':meta', 'paused', ARGV[6])
end
call('PUBLISH', KEYS[2] .. ':wake', '')
return 1
