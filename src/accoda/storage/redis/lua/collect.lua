-- What lies in an outbox for longer than its sender should need, a part at a time.
--
-- keys:      outbox
-- arguments: now, call, forget, width, the age in ms from which on it counts, where to go on ("0": the beginning)
-- answer:    where to go on ("0": that was all), then run, sealed jobs, and so on; what is no run of jobs is
--            passed over
-- uses:      server
local AT_ONCE = 100
local page = call('HSCAN', KEYS[1], ARGV[6], 'COUNT', AT_ONCE)
local answer = {page[1]}
for n = 1, #page[2], 2 do
  local at, sealed = string.match(page[2][n + 1], '^(%d+) (.*)$')
  if at and now - at >= tonumber(ARGV[5]) then
    answer[#answer + 1] = page[2][n]
    answer[#answer + 1] = sealed
  end
end
return answer
