-- An ended job of an id: its member of `<base>:dead` or `<base>:done`, rank and record. A damaged one is set aside first.
local function split_ended(base, state, member, score)
  local rank, record = match(member, '^([^,]*),(.*)$')
  local job = record and parse(record)
  if job and tonumber(job.id) == tonumber(score) then
    return good_number(rank) and rank or '0', record
  end
  call('ZREM', base .. ':' .. state, member)
  local id = good_number(score) and #score <= 16 and format('%016.0f', score) or nil
  set_aside(base, member, id, 'a ' .. state .. ' job')
end

local function ended(base, state, id)
  local member = call('ZRANGEBYSCORE', base .. ':' .. state, id, id, 'LIMIT', 0, 1)[1]
  if member then
    local rank, record = split_ended(base, state, member, id)
    if record then
      return state, record, rank
    end
    return ended(base, 'dead', id)
  end
end

-- Where a job is: its state, its record, its rank, and its batch if it is taken. nil: nowhere in this queue. What cannot
-- be read is set aside on the way, and is then a dead job, mostly under the same id.
local function locate(base, id)
  local value = call('HGET', base .. ':taken', id)
  if value then
    local batch, rank, record = split_taken(value)
    local job = record and parse(record)
    if job and job.id == id then
      return 'taken', record, good_number(rank) and rank or '0', batch
    end
    call('HDEL', base .. ':taken', id)
    set_aside(base, record or value, id, 'a taken job')
    if batch then
      release(base, batch, 1)
    end
  end
  local state, record, rank = waiting(base, id)
  if state then
    if parse(record) then
      return state, record, good_number(rank) and rank or '0'
    end
    clear_shelf(base, state, record, 'a ' .. state .. ' job')
  end
  local found, text, place = ended(base, 'dead', id)
  if found then
    return found, text, place
  end
  return ended(base, 'done', id)
end

-- What `find` and `browse` tell of a job: state, rank, lease_until, waiters, worker, taken_at, ended_at, reason, result,
-- afresh (empty: "0,0"), record.
local function describe(base, state, record, rank, batch)
  local id = sub(record, 1, 16)
  local notes, till = notes_of(base, id), ''
  if batch then
    note_run(base, notes, batch)
    till = whole(end_of(base, batch) or now)
    till = #till <= 16 and till or ''
  end
  return {state, rank, till, waiters_of(base, id), notes.worker, notes.taken_at, notes.ended_at, notes.reason,
    notes.result, afresh_of(base, {id})[1] or '', record}
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
    call('ZREM', base .. ':' .. state .. ':at', id)
  else
    unshelve(base, state, record)
  end
  if state ~= 'dead' and state ~= 'done' then
    free_key(base, parse(record))
  end
  forget_job(base, id)
  return true
end
