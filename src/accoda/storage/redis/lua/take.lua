-- Leases the first ready jobs of a queue to one taker.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, batch, count, lease (ms), max_cost (or empty), worker
-- answer:    the records; then their ranks with commas, or one if it is that of all; and last 'p' where all jobs are plain,
--            else the waiters as "place:count" with commas; where jobs crashed or began afresh, there follow ';' and those
--            as "place:fresh_at:crashes" with commas
-- uses:      time leave hand_out
-- later:     bucket record shelf notes lease kept due ids aside moves take
--
-- The batch's name is the caller's own: a take whose reply was lost is sent again and finds its batch.
--
-- The server writes each number that a script gives it as text, with all the digits of a float, which takes longer than most
-- commands. So here they are given as texts, and the moments of others are counted, not read.
local base, batch, count = KEYS[2], ARGV[5], tonumber(ARGV[6])

-- The ids of jobs that are all plain (see record.lua), else nothing. A plain job of today is known by where its commas are,
-- which takes a tenth of the time of a look at every field; what such a look would find, the client finds (see
-- aside.lua). What follows the id is the same for jobs that were stored together, so it is mostly looked at once.
local function plain_ids(records)
  local ids, known = {}, nil
  for n = 1, #records do
    local record = records[n]
    local head = sub(record, 17, 38)
    if head ~= known then
      if sub(head, 1, 3) ~= 'p0,' or sub(head, 17, 22) ~= ',,,,,\0' then
        return nil
      end
      known = head
    end
    ids[n] = sub(record, 1, 16)
  end
  return ids
end

-- The ranks of the first ready jobs: one text where all have the same. They are in order, so then the first and the last
-- have it. The text of a score is dear, so all are asked for only where they differ. Nothing where one is infinite.
local function ranks_of(records)
  local shelf, size = base .. ':ready', #records
  local first, last
  if size == 1 then
    first = call('ZSCORE', shelf, records[1])
    last = first
  else
    first, last = unpack(call('ZMSCORE', shelf, records[1], records[size]))
  end
  if first == '-inf' or last == 'inf' then
    return nil
  elseif first == last then
    return first
  end
  local found, ranks = call('ZRANGE', shelf, '0', format('%d', size - 1), 'WITHSCORES'), {}
  for n = 1, size do
    ranks[n] = found[2 * n]
  end
  return ranks
end

-- The answer, or nothing where jobs are not plain.
local function take_plain()
  local records = call('ZRANGE', base .. ':ready', '0', format('%d', count - 1))
  if #records == 0 then
    return {'', ''}
  end
  local ids = plain_ids(records)
  local ranks = ids and ranks_of(records)
  if not ranks then
    return nil
  end
  records, ranks = hand_out(base, batch, records, ids, ranks)
  local size = #records
  records[size + 1] = type(ranks) == 'string' and ranks or concat(ranks, ',')
  records[size + 2] = 'p'
  return records
end

-- Whether all is as it mostly is: a new take of a queue that is not paused, in which nothing is due, mostly because nothing
-- is delayed nor kept.
local moment = format('%d', now)
local is_usual = ARGV[8] == '' and count > 0 and call('HEXISTS', base .. ':batches', batch) == 0
  and call('ZCOUNT', base .. ':ends', '-inf', moment) == 0
  and (call('EXISTS', base .. ':delayed', base .. ':kept') == 0
    or call('ZCOUNT', base .. ':delayed', '-inf', moment) + call('ZCOUNT', base .. ':kept', '-inf', moment) == 0)
  and not call('HGET', base .. ':meta', 'paused')
return is_usual and take_plain() or rest().take_any(base, batch, count, tonumber(ARGV[8]))
