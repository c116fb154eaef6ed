-- Where a job is: its state, its record, its rank, and its batch if it is taken. nil: nowhere in this queue.
local function locate(base, id)
  local value = call('HGET', base .. ':taken', id)
  if value then
    local batch, rank, record = split_taken(value)
    return 'taken', record, rank, batch
  end
  local state, record, rank = waiting(base, id)
  if state then
    return state, record, rank
  end
  for _, ended in ipairs({'dead', 'done'}) do
    local member = call('ZRANGEBYSCORE', base .. ':' .. ended, id, id)[1]
    if member then
      local rank, record = match(member, '^([^,]*),(.*)$')
      return ended, record, rank
    end
  end
end

-- What `find` and `browse` tell of a job: state, rank, lease_until, waiters, worker, taken_at, ended_at, reason, result,
-- afresh (empty: "0,0"), record.
local function describe(base, state, record, rank, batch)
  local id = sub(record, 1, 16)
  local notes, till = notes_of(base, id), ''
  if batch then
    note_run(base, notes, batch)
    till = call('ZSCORE', base .. ':ends', batch)
  end
  return {state, rank, till, call('LLEN', base .. ':waiters:' .. id), notes.worker, notes.taken_at, notes.ended_at,
    notes.reason, notes.result, call('HGET', base .. ':afresh', id) or '', record}
end

-- Delete a job, wherever it is.
local function remove(base, id)
  local state, record, rank, batch = locate(base, id)
  if not state then
    return false
  end
  if state == 'taken' then
    call('HDEL', base .. ':taken', id)
    release(base, batch, 1)
  elseif state == 'dead' or state == 'done' then
    call('ZREMRANGEBYSCORE', base .. ':' .. state, id, id)
    call('ZREM', base .. ':kept', id)
  else
    unshelve(base, state, record)
  end
  if state ~= 'dead' and state ~= 'done' then
    free_key(base, parse(record))
  end
  forget_job(base, id)
  return true
end
