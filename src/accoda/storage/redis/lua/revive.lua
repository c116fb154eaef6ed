-- Makes dead jobs ready again. One whose key is held by another job stays dead.
--
-- keys:      calls, queues, then the base of each queue to look in
-- arguments: now, call, forget, width, then the ids
-- answer:    how many were revived
-- uses:      time once record shelf notes lease due
local earlier = once(false)
if earlier then
  return earlier
end

local function revive(base, id)
  local member = call('ZRANGEBYSCORE', base .. ':dead', id, id)[1]
  if not member then
    return false
  end
  local rank, record = match(member, '^([^,]*),(.*)$')
  local job = parse(record)
  if job.key ~= '' and call('HSETNX', base .. ':keys', job.key, id) == 0 then
    return false
  end
  call('ZREMRANGEBYSCORE', base .. ':dead', id, id)
  local notes = notes_of(base, id)
  notes.ended_at = ''
  write_notes(base, id, notes)
  give_back(job, now)
  begin_afresh(base, job)
  wait(base, job, rank)
  return true
end

local revived = 0
for at = 5, #ARGV do
  for n = 3, #KEYS do
    if revive(KEYS[n], ARGV[at]) then
      revived = revived + 1
      break
    end
  end
end
return remember(revived)
