-- Puts jobs of a take back whose caller was cancelled. Their tokens were never handed out, so these stay.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, then the batch, or id, attempts, taken_at for each lease
-- answer:    how many went back
-- uses:      server record placed lease rules lane turn choose line balance due
local base, ids, records = KEYS[2], {}, {}
local function put_back(id, batch, record)
  ids[#ids + 1], records[#records + 1] = id, record
  local lane = select(4, Record.head_of(record)) or ''
  if lane ~= '' then
    Lane.end_run(base, lane)
  end
  Lease.release(base, batch, 1)
end

if #ARGV == 5 then
  for _, id in ipairs(Lease.ids_in(Lease.batch_of(base, ARGV[5]) or '')) do
    local batch, record = Lease.split(call('HGET', base .. ':taken', id) or '')
    if batch == ARGV[5] then
      put_back(id, batch, record)
    end
  end
else
  for at = 5, #ARGV, 3 do
    local value = call('HGET', base .. ':taken', ARGV[at]) or ''
    local batch, taken_at, attempts = Record.head_of_taken(value)
    if attempts == ARGV[at + 1] and taken_at == ARGV[at + 2] then -- else another taker has it by now
      put_back(ARGV[at], batch, select(2, Lease.split(value)))
    end
  end
end
if #ids > 0 then
  Due.make_ready(base, records)
  many('HDEL', base .. ':taken', ids)
  Lane.balance()
  call('PUBLISH', base .. ':wake', '')
end
return #ids
