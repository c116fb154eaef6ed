-- Puts jobs of a take back whose caller was cancelled. Their tokens were never handed out, so these stay.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, batch (or empty: whichever), then ids (none: all of the batch)
-- answer:    how many went back
-- uses:      server record placed lease due
local base, batch = KEYS[2], ARGV[5]
local ids, records = {}, {}
local joined = #ARGV > 5 and table.concat(ARGV, '', 6) or select(2, Lease.batch_of(base, batch)) or ''
for _, id in ipairs(Lease.ids_in(joined)) do
  local name, record = Lease.split(call('HGET', base .. ':taken', id) or '')
  if name and (name == batch or batch == '') then
    ids[#ids + 1], records[#records + 1] = id, record
    Lease.release(base, name, 1)
  end
end
if #ids > 0 then
  Due.make_ready(base, records)
  many('HDEL', base .. ':taken', ids)
  call('PUBLISH', base .. ':wake', '')
end
return #ids
