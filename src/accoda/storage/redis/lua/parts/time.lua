-- The present moment in milliseconds: the server's, or the test clock's where ARGV[1] gives one. The only place for it.
local call = redis.call
local now
if ARGV[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = tonumber(ARGV[1])
end
