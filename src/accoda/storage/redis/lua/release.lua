-- Puts jobs of a take back whose answer nobody received. Nobody knows their tokens, so these stay.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, batch (or empty: whichever), then ids (none: all of the batch)
-- answer:    how many went back
-- uses:      time record leave bucket shelf lease
local base, batch = KEYS[2], ARGV[5]
local joined = table.concat(ARGV, '', 6)
if joined == '' then
  if call('HEXISTS', base .. ':batches', batch) == 0 then
    return 0
  end
  joined = select(2, batch_of(base, batch)) or ''
end
local back = 0
for id in string.gmatch(joined, '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') do
  local value = call('HGET', base .. ':taken', id)
  local held, rank, record
  if value then
    held, rank, record = split_taken(value)
  end
  if held and good_number(rank) and (held == batch or batch == '') then
    call('HDEL', base .. ':taken', id)
    shelve(base .. ':ready', {rank, record}, {id}, {rank})
    release(base, held, 1)
    back = back + 1
  end
end
if back > 0 then
  call('PUBLISH', base .. ':wake', '')
end
return back
