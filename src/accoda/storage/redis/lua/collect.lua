-- What lies in an outbox for longer than its sender should need.
--
-- keys:      outbox
-- arguments: now, call, forget, width, the age in ms from which on it counts
-- answer:    run, sealed jobs, and so on
-- uses:      time
local answer = {}
local entries = call('HGETALL', KEYS[1])
for n = 1, #entries, 2 do
  local at, sealed = string.match(entries[n + 1], '^(%d+) (.*)$')
  if now - at >= tonumber(ARGV[5]) then
    answer[#answer + 1] = entries[n]
    answer[#answer + 1] = sealed
  end
end
return answer
