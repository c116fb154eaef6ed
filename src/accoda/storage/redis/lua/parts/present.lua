-- One job as it is at this moment, where more is due than one call may move (see due.lua): `locate`, but the job's own
-- start or the end of its lease is applied first.
local function start_now(base, id, record)
  local start, rank = split_place(places_of(base .. ':delayed', {id})[1])
  if start and tonumber(start) <= now then
    unlock(base)
    shelve(base .. ':ready', {rank, record}, {id}, {rank})
    unshelve(base, 'delayed', record)
  end
end

local function end_now(base, id, batch)
  local till = end_of(base, batch)
  if till and till <= now then
    local taken_at, _, worker = batch_of(base, batch)
    come_back(base, {id}, {call('HGET', base .. ':taken', id)}, taken_at or '', worker and '=' .. worker or '')
    release(base, batch, 1)
  end
end

local function locate_now(base, id)
  local state, record, rank, batch = locate(base, id)
  if may_move <= 0 and state == 'delayed' then
    start_now(base, id, record)
  elseif may_move <= 0 and state == 'taken' then
    end_now(base, id, batch)
  else
    return state, record, rank, batch
  end
  return locate(base, id)
end

