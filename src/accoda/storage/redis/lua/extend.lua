-- Makes current leases end later, or sooner.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, lease (ms), name for new batches, then id, attempts, taken_at for
--            each lease
-- answer:    the refused ones as "place:l" (lost) or "place:c" (cancelled), with commas, counted from 0
-- uses:      server record placed lease
--
-- Sent again after a lost reply it does the same once more: the leases end `lease` after the later run.
local base, till = KEYS[2], format('%d', now + ARGV[5])
Lease.unlock(base)
local groups, order, refused = {}, {}, {}
for at = 7, #ARGV, 3 do
  local id, value = ARGV[at], call('HGET', base .. ':taken', ARGV[at])
  local batch, taken_at, attempts = Record.head_of_taken(value or '')
  if attempts ~= ARGV[at + 1] or taken_at ~= ARGV[at + 2] or Lease.end_of(base, batch) <= now then
    refused[#refused + 1] = (at - 7) / 3 .. ':' .. Lease.why_lost(base, id, ARGV[at + 1], ARGV[at + 2])
  else
    if not groups[batch] then
      groups[batch] = {size = 0, values = {}}
      order[#order + 1] = batch
    end
    local group = groups[batch]
    group.size = group.size + (group.values[id] and 0 or 1)
    group.values[id] = value
  end
end
for n, batch in ipairs(order) do
  local group = groups[batch]
  if tonumber(call('HGET', base .. ':batches', batch .. '#')) == group.size then
    call('ZADD', base .. ':ends', till, batch) -- all that is left of the batch: it stays one
  else
    local name, ids, held = ARGV[6] .. '/' .. n, {}, {}
    for id, value in pairs(group.values) do
      ids[#ids + 1], held[#held + 1] = id, id
      held[#held + 1] = name .. sub(value, #batch + 1)
    end
    local _, worker = Lease.batch_of(base, batch)
    Lease.give(base, name, till, table.concat(ids) .. ',' .. (worker or ''), held)
    Lease.release(base, batch, #ids)
  end
end
if #order > 0 then
  call('PUBLISH', base .. ':wake', '') -- an end may have come nearer
end
return table.concat(refused, ',')
