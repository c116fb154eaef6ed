-- Makes delayed jobs ready now, whatever they wait for.
--
-- keys:      calls, queues, then the base of each queue to look in
-- arguments: now, call, forget, width, then the ids
-- answer:    how many were started
-- uses:      time once record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate present
local earlier = once(false)
if earlier then
  return earlier
end

-- Whether the job is one of this queue, and whether it was started.
local function start(base, id)
  if not rest().locate(base, id) then
    return false
  end
  apply_due(base)
  local state, record, rank = rest().locate_now(base, id)
  if state ~= 'delayed' then
    return true, false
  end
  local job = parse(record)
  job.start = whole(now)
  -- Where a key of the line is of another type, this or `wait`'s first look at it fails, before anything is changed: else
  -- the job would stand in both lines.
  call('ZCARD', base .. ':ready:ids')
  wait(base, job, rank)
  unshelve(base, 'delayed', record)
  return true, true
end

local started = 0
for at = 5, #ARGV do
  for n = 3, #KEYS do
    local ok, here, started_here = attempt(start, KEYS[n], ARGV[at])
    if ok and here then
      started = started + (started_here and 1 or 0)
      break
    end
  end
end
return remember(started)
