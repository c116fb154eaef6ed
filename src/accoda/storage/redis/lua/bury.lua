-- Buries taken records that the taker could not read: dead jobs, with the reason, that have the bytes as their data.
-- Each has a new id, for its own may be damaged, or another job's. What is left of it in its lane is for
-- balance.lua to mend: the lane may be what cannot be read.
--
-- keys:      calls, ids, queues, base
-- arguments: now, call, forget, width, step, number, floor, then the records
-- answer:    how many were buried
-- uses:      server once record placed lease rules lane turn choose line balance due job add
local earlier = once(false)
if earlier then
  return earlier
end
local base, buried = KEYS[4], 0
for at = 8, #ARGV do
  local record = ARGV[at]
  local name = Record.head_of(record) or record
  local batch, held = Lease.split(call('HGET', base .. ':taken', name) or '')
  if held == record then
    local before_lane, after_key = Record.new_texts(moment, '0', '', '', '')
    local job = Record.parse(format('%016d', (Add.next_ids(1))) .. before_lane .. '\t' .. after_key .. record)
    job.reason = '=unreadable record: not written by Accoda, or damaged'
    Job.finish(base, 'dead', job)
    call('HDEL', base .. ':taken', name)
    Lease.release(base, batch, 1)
    Rules.ended(base, 1)
    buried = buried + 1
  end
end
if buried > 0 then
  Lease.count(base, 'buried', buried)
end
return remember(buried)
