-- Stops handing out jobs of a queue, or goes on with it.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, name, what ("pause" or "resume"), until (a moment, or empty: until resumed)
-- answer:    1
-- uses:      time
call('HDEL', KEYS[2] .. ':meta', 'paused') -- first, because it is allowed on a full server (see parts/once.lua)
if ARGV[6] == 'pause' then
  call('SADD', KEYS[1], ARGV[5])
  call('HSET', KEYS[2] .. ':meta', 'paused', ARGV[7])
end
call('PUBLISH', KEYS[2] .. ':wake', '')
return 1
