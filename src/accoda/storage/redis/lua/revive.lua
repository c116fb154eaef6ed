-- Makes dead jobs ready again. One whose key is held by another job stays dead.
--
-- keys:      calls, queues, then the base of each queue to look in
-- arguments: now, call, forget, width, then the ids
-- answer:    how many were revived
-- uses:      time once record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate
local earlier = once(false)
if earlier then
  return earlier
end

local function revive(base, id)
  local state, record, rank = rest().ended(base, 'dead', id)
  if not state then
    return false
  end
  local job = parse(record)
  if job.key ~= '' and call('HSETNX', base .. ':keys', job.key, id) == 0 then
    return false
  end
  call('ZREMRANGEBYSCORE', base .. ':dead', id, id)
  call('ZREM', base .. ':dead:at', id)
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
    local ok, revived_here = attempt(revive, KEYS[n], ARGV[at])
    if ok and revived_here then
      revived = revived + 1
      break
    end
  end
end
return remember(revived)
