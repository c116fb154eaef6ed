-- A page of the jobs of a queue in one state.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, state, order ("line" or "id"), sort, id, limit
--   sort, id  those of the last job before the page; both empty: from the first
-- answer:    sort and id of the last job of the page (both empty: it was the last page), then for each job what
--            `Job.describe` in parts/job.lua tells. What cannot be read is passed over
-- uses:      server record placed lease rules lane turn choose line balance due job
local base, state, by_id, sort, after, limit = KEYS[2], ARGV[5], ARGV[6] == 'id', ARGV[7], ARGV[8], tonumber(ARGV[9])
local set = base .. ':' .. state
local page = {'', ''}
if limit == 0 then
  return page
end
Due.apply(base)
Lane.balance()

-- Add a job to the page. With the last one it may hold, its place is noted for the next page.
local function add(at, id, record, batch, taken_at)
  if Record.parse(record) then
    page[#page + 1] = Job.describe(base, state, record, batch, taken_at)
  end
  page[1], page[2] = at, id
end

-- In the order of the scores; the dead, done and cancelled from the end, latest first.
local function by_score()
  local reverse = ENDED[state]
  local size, at = call('ZCARD', set), 0
  if after ~= '' then
    at = Placed.count_before(set, sort, after)
    local here = call('ZRANGE', set, at, at)[1]
    at = reverse and size - at or at + (here and sub(here, 1, #after) == after and 1 or 0)
  end
  local found = call(reverse and 'ZREVRANGE' or 'ZRANGE', set, at, at + limit - 1, 'WITHSCORES')
  for n = 1, #found, 2 do
    local record = found[n]
    if state == 'held' then
      record = Placed.find(base, state, record) or ''
    end
    add(found[n + 1], Record.head_of(record) or '', record)
  end
  return #found == 2 * limit
end

local function by_ids()
  local ids = Placed.ids_from(base, state, after, limit + 1)
  local from = ids[1] == after and 2 or 1
  for n = from, math.min(#ids, from + limit - 1) do
    add('0', ids[n], Placed.find(base, state, ids[n]) or '')
  end
  return #ids >= from + limit
end

-- Taken jobs: all of them are put in order, by the ends of their leases or by id.
local function taken()
  local jobs, ends = {}, {}
  for _, id in ipairs(call('HKEYS', base .. ':taken')) do
    local batch, record = Lease.split(call('HGET', base .. ':taken', id))
    if batch and Record.head_of(record) == id then
      ends[batch] = ends[batch] or Lease.end_of(base, batch)
      local job = {till = by_id and 0 or ends[batch], id = id}
      if after == '' or job.till > tonumber(sort) or (job.till == tonumber(sort) and id > after) then
        jobs[#jobs + 1] = job
      end
    end
  end
  table.sort(jobs, function(one, other)
    return one.till < other.till or (one.till == other.till and one.id < other.id)
  end)
  for n = 1, math.min(#jobs, limit) do
    local job = jobs[n]
    local batch, record, taken_at = Lease.split(call('HGET', base .. ':taken', job.id))
    add(format('%d', job.till), job.id, record, batch, taken_at)
  end
  return #jobs > limit
end

local more
if state == 'taken' then
  more = taken()
elseif by_id then
  more = by_ids()
else
  more = by_score()
end
if not more then
  page[1], page[2] = '', ''
end
return page
