-- Enqueues a run of jobs that comes out of another shard's outbox. Done once, however often it is sent.
--
-- keys:      moved, ids, queues, then the base of each queue
-- arguments: now, call, forget, width, step, number, floor, count, names, then the jobs (see parts/add.lua)
-- answer:    as enqueue
-- uses:      time record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate add
--
-- `moved` is the mark of this run: it stays ten minutes, and nobody sends a run that he read more than five ago.
local earlier = call('GET', KEYS[1])
if earlier then
  return earlier
end
call('SET', KEYS[1], '', 'PX', 600000)
local add = rest()
local bases = add.bases_of(ARGV[9])
add.open_queues(KEYS[3], ARGV[9])
local count, step = tonumber(ARGV[8]), tonumber(ARGV[5])
local sequence, number = add.next_ids(KEYS[2], count, step, tonumber(ARGV[6]), tonumber(ARGV[7]), bases)
local said = add.add_all(bases, ARGV, 10, count, sequence, step, number)
local answer = add.tell(said, count, sequence, step, number)
call('SET', KEYS[1], answer, 'PX', 600000)
return answer
