-- The moves of jobs whose moment has come. In all of these the new place is written first, so that nothing is lost should
-- a command fail, as it does where a key is of another type.
local LOOK_AT_ONCE = 8 * DUE_AT_ONCE -- ids of a batch that one call looks at: most may be settled

local function start_delayed(base, till)
  local ready, delayed = base .. ':ready', base .. ':delayed'
  local records = call('ZRANGEBYSCORE', delayed, '-inf', till, 'LIMIT', 0, may_move)
  local pairs, ids, ranks, bad, all = {}, {}, {}, {}, {}
  for n = 1, #records do
    all[n] = sub(records[n], 1, 16)
  end
  local places = places_of(delayed, all)
  for n = 1, #records do
    if parse(records[n]) then
      local _, rank = split_place(places[n])
      ids[#ids + 1], ranks[#ranks + 1] = all[n], rank
      pairs[#pairs + 1] = rank
      pairs[#pairs + 1] = records[n]
    else
      bad[#bad + 1] = records[n]
    end
  end
  unlock(base)
  shelve(ready, pairs, ids, ranks)
  for n = 1, #bad do
    clear_shelf(base, 'delayed', bad[n], 'a delayed job')
  end
  if #ids > 0 then
    call('ZREMRANGEBYRANK', delayed, 0, #ids - 1) -- what is left of the first ones: the good ones
    unplace(delayed, ids)
  end
  may_move = may_move - #records
end

-- These taken jobs, whose leases have ended, are ready again. What cannot be read is set aside.
local function come_back(base, ids, values, taken_at, worker)
  local all_notes, back, ranks, pairs, notes_args = values_of(base .. ':notes', ids), {}, {}, {}, {}
  unlock(base)
  for n = 1, #ids do
    local _, rank, record = split_taken(values[n])
    local job = record and parse(record)
    if job and job.id == ids[n] then
      give_back(job, now)
      local notes = read_notes(all_notes[n])
      notes.taken_at, notes.worker = taken_at, worker
      notes_args[#notes_args + 1] = job.id
      notes_args[#notes_args + 1] = notes_text(notes)
      rank = good_number(rank) and rank or '0'
      back[#back + 1], ranks[#ranks + 1] = job.id, rank
      pairs[#pairs + 1] = rank
      pairs[#pairs + 1] = build(job)
    else
      call('HDEL', base .. ':taken', ids[n])
      set_aside(base, record or values[n], ids[n], 'a taken job')
    end
  end
  if #back > 0 then
    shelve(base .. ':ready', pairs, back, ranks)
    many('HDEL', base .. ':taken', back)
    many('HSET', base .. ':notes', notes_args)
    add_to(base .. ':meta', 'expired', #back)
    count_crashes(base, back)
  end
end

-- A batch of unreadable text: its jobs are found by a look through all that are taken.
local function lose_batch(base, batch)
  unlock(base)
  call('HSET', base .. ':batches', '?0', '0,,')
  call('ZADD', base .. ':ends', 'NX', now, '?0')
  call('HDEL', base .. ':batches', batch, batch .. '#')
  call('ZREM', base .. ':ends', batch)
  may_move = may_move - 1
end

-- One step of a look through all taken jobs for those whose batch is gone; its name holds where it has come to.
local function seek_lost(base, name, score)
  local cursor = match(name, '^%?(%d+)$') or '0'
  local reply = call('HSCAN', base .. ':taken', cursor, 'COUNT', 500)
  local ids, values, known = {}, {}, {}
  for n = 1, #reply[2], 2 do
    local batch = split_taken(reply[2][n + 1]) or ''
    if known[batch] == nil then
      known[batch] = batch ~= '' and call('ZSCORE', base .. ':ends', batch) and true or false
    end
    if not known[batch] then
      ids[#ids + 1], values[#values + 1] = reply[2][n], reply[2][n + 1]
    end
  end
  come_back(base, ids, values, '', '')
  call('HDEL', base .. ':batches', name)
  call('ZREM', base .. ':ends', name)
  if reply[1] ~= '0' then
    call('HSET', base .. ':batches', '?' .. reply[1], '0,,')
    call('ZADD', base .. ':ends', score, '?' .. reply[1])
  end
  may_move = may_move - math.max(1, #ids)
end

local function end_lease(base, batch)
  local taken_at, joined, worker = batch_of(base, batch)
  if not taken_at or #joined % 16 ~= 0 or joined == '' then
    return lose_batch(base, batch)
  end
  local held, values, at = {}, {}, 0
  while at < #joined and #held < may_move and at < LOOK_AT_ONCE * 16 do
    local ids = {}
    for from = at, math.min(#joined, at + 16 * (may_move - #held)) - 1, 16 do
      ids[#ids + 1] = sub(joined, from + 1, from + 16)
    end
    at = at + 16 * #ids
    local found = values_of(base .. ':taken', ids)
    for n = 1, #ids do
      local name = found[n] and split_taken(found[n])
      if found[n] and (not name or name == batch) then
        held[#held + 1], values[#values + 1] = ids[n], found[n]
      end
    end
  end
  come_back(base, held, values, taken_at, '=' .. worker)
  if at < #joined then
    call('HSET', base .. ':batches', batch, taken_at .. ',' .. sub(joined, at + 1) .. ',' .. worker)
    add_to(base .. ':batches', batch .. '#', -#held)
  else
    call('HDEL', base .. ':batches', batch, batch .. '#')
    call('ZREM', base .. ':ends', batch)
  end
  may_move = may_move - math.max(1, #held)
end

local function end_leases(base, till)
  local ended = call('ZRANGEBYSCORE', base .. ':ends', '-inf', till, 'WITHSCORES', 'LIMIT', 0, math.min(100, may_move))
  for n = 1, #ended, 2 do
    if may_move <= 0 then
      return
    elseif sub(ended[n], 1, 1) == '?' then
      seek_lost(base, ended[n], ended[n + 1])
    else
      end_lease(base, ended[n])
    end
  end
end

local function forget_kept(base, till)
  local ids = call('ZRANGEBYSCORE', base .. ':kept', '-inf', till, 'LIMIT', 0, may_move)
  for _, id in ipairs(ids) do
    if good_number(id) then
      call('ZREMRANGEBYSCORE', base .. ':done', id, id)
    end
    call('DEL', base .. ':waiters:' .. id)
  end
  many('HDEL', base .. ':notes', ids)
  many('HDEL', base .. ':afresh', ids)
  many('ZREM', base .. ':kept', ids)
  many('ZREM', base .. ':done:at', ids)
  if call('EXISTS', base .. ':done') == 0 then
    call('UNLINK', base .. ':done:at') -- what older clients left in it
  end
  may_move = may_move - #ids
end

-- The kind whose first moment came first is applied up to the first moment of the other, and so on. Kept results come
-- last: nobody waits for them to go.
local KINDS = {{'delayed', start_delayed}, {'ends', end_leases}}
local function move_due(base)
  while may_move > 0 do
    local first, act, till = nil, nil, now
    for _, kind in ipairs(KINDS) do
      local moment = first_moment(base .. ':' .. kind[1])
      if moment and moment <= now then
        if not first or moment < first then
          till = first or now
          first, act = moment, kind[2]
        elseif moment < till then
          till = moment
        end
      end
    end
    if not first then
      break
    end
    act(base, whole(math.ceil(till)))
  end
  local kept = may_move > 0 and first_moment(base .. ':kept')
  if kept and kept <= now then
    forget_kept(base, whole(now))
  end
end

-- Moments beyond all that can be told are damage: a lease and a keeping end now, a job without a start is set aside.
local NEVER = '2e16' -- ms; a moment is at most 2^53, and so is the length of a lease
local function end_the_endless(base)
  for _, name in ipairs({':ends', ':kept'}) do
    for _, member in ipairs(call('ZRANGEBYSCORE', base .. name, NEVER, '+inf', 'LIMIT', 0, 100)) do
      unlock(base)
      call('ZADD', base .. name, now, member)
    end
  end
  for _, record in ipairs(call('ZRANGEBYSCORE', base .. ':delayed', NEVER, '+inf', 'LIMIT', 0, 100)) do
    clear_shelf(base, 'delayed', record, 'a delayed job without a start time')
  end
end

