-- Stores new jobs, all of them, in order.
--
-- keys:      calls, ids, queues, then the base of each queue
-- arguments: now, call, forget, width, step, number, floor, names, then the runs of jobs (see parts/add.lua)
-- answer:    see `Add.jobs` in parts/add.lua
-- uses:      server once record placed lease rules lane turn choose line balance due job add
local earlier, runs, at = once(true), {}, 9
if earlier then
  return earlier
end
local queues = Add.queues_in(ARGV[8])
while at <= #ARGV do
  runs[#runs + 1], at = Add.read_run(at, queues)
end
return remember(Add.jobs(runs))
