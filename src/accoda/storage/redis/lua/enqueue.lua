-- Stores new jobs, all of them, in order.
--
-- keys:      calls, ids, queues, then the base of each queue
-- arguments: now, call, forget, width, step, number, floor, count, names, then the jobs (see parts/add.lua)
-- answer:    the first id where all jobs are plain, else "id what waiters" without spaces for each job, with commas
-- uses:      time once record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate add
local earlier = once(true)
if earlier then
  return earlier
end
local add = rest()
local bases = add.bases_of(ARGV[9])
add.open_queues(KEYS[3], ARGV[9])
local count, step = tonumber(ARGV[8]), tonumber(ARGV[5])
local sequence, number = add.next_ids(KEYS[2], count, step, tonumber(ARGV[6]), tonumber(ARGV[7]), bases)
local said = add.add_all(bases, ARGV, 10, count, sequence, step, number)
return remember(add.tell(said, count, sequence, step, number))
