-- Makes current leases end later, or sooner.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, lease (ms), name for new batches, then id, attempts for each lease
-- answer:    the places of the lost ones with commas, counted from 0
-- uses:      time record leave bucket shelf lease
--
-- Sent again after a lost reply it does the same once more: the leases end `lease` after the later run.
local base, till = KEYS[2], now + ARGV[5]
call('HDEL', base .. ':batches', '') -- first, because it is allowed on a full server (see parts/once.lua)
local groups, order, lost = {}, {}, {}
for at = 7, #ARGV, 2 do
  local id, value = ARGV[at], call('HGET', base .. ':taken', ARGV[at])
  local batch, attempts
  if value then
    batch, attempts = match(value, '^([^,]*),[^,]*,%d+%a(%d+)')
  end
  if attempts ~= ARGV[at + 1] or (end_of(base, batch) or 0) <= now then
    lost[#lost + 1] = (at - 7) / 2
  else
    if not groups[batch] then
      groups[batch] = {size = 0, values = {}}
      order[#order + 1] = batch
    end
    local group = groups[batch]
    if not group.values[id] then
      group.size = group.size + 1
      group.values[id] = value
    end
  end
end
for n, batch in ipairs(order) do
  local group = groups[batch]
  if tonumber(call('HGET', base .. ':batches', batch .. '#')) == group.size then
    call('ZADD', base .. ':ends', till, batch) -- all that is left of the batch: it stays one
  else
    local name, ids = ARGV[6] .. '/' .. n, {}
    for id, value in pairs(group.values) do
      ids[#ids + 1] = id
      call('HSET', base .. ':taken', id, name .. sub(value, #batch + 1))
    end
    local taken_at, _, worker = batch_of(base, batch)
    taken_at, worker = taken_at or whole(now), worker or ''
    call('ZADD', base .. ':ends', till, name)
    call('HSET', base .. ':batches', name, taken_at .. ',' .. table.concat(ids) .. ',' .. worker, name .. '#', #ids)
    release(base, batch, #ids)
  end
end
if #order > 0 then
  call('PUBLISH', base .. ':wake', '') -- an end may have come nearer
end
return table.concat(lost, ',')
