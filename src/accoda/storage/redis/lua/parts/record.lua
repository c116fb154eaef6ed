-- A job's record: five texts with NUL between them. No other Lua and, in Python, nothing but jobs.py knows its fields.
--
--   0000000000000017,2,60.0,customer-3\tuser-7
--                                     id, attempts, keep_for (seconds), lane, a tab, key. A lane has no control characters
--   1700000000000,1700000005000,2.5,5,flow-1
--                                     created_at, start_time, rank, cost, reports_to (and the comma before it, if it
--                                     has one)
--   1,1,1700000000000,1700000001000,,,worker-3
--                                     of a job that has run, else empty: tries, crashes, prev_start_time, taken_at,
--                                     ended_at, size of the result, worker
--   =timeout                          why it was last retried or buried; empty: never
--   the payload                       the result and the payload
--
-- Empty numbers are 0 or none; an empty start_time is created_at. The id has 16 digits and comes first, so that records
-- of equal score are in the order of their ids. What decides whether there is more about a job than its record
-- (keep_for, lane, key) comes next, so that a loop over a batch reads no more than that. taken_at and worker are of the
-- last run that is over: those of the present run are beside the record, see lease.lua.
local Record = {}
local match, sub = string.match, string.sub
local DETAILS = '^(%d+),(%d*),([^,]*),(%d*)(%Z*)%z(%Z*)%z(%Z*)%z()'
local NO_PAST = ',,,,,,'
local PAST = '^(%d*),(%d*),(%d*),(%d*),(%d*),(%d*),(.*)$'

-- id, attempts, keep_for, lane, key. Nothing where it is no record.
function Record.head_of(record)
  local id, attempts, keep, lane, key = match(record, '^(%d+),(%d+),([^,]*),([^%z\t]*)\t(%Z*)%z')
  if id and #id == 16 then
    return id, attempts, keep, lane, key
  end
end

-- The same of a taken job, "batch,taken_at,record", with the batch and the moment of the take instead of the id.
function Record.head_of_taken(value)
  return match(value, '^([^,]*),(%d+),%d+,(%d+),([^,]*),([^%z\t]*)\t(%Z*)%z')
end

-- The rank of a record, and its cost. Nothing where they cannot be read.
function Record.rank_of(record)
  local rank, cost = match(record, '^%Z*%z%d+,%d*,([^,]*),(%d*)')
  if rank and Record.is_number(rank) then
    return rank, cost
  end
end

-- `reports_to` as it stands behind the cost.
function Record.with_comma(reports_to)
  return reports_to == '' and '' or ',' .. reports_to
end

-- What a new record has between its id and its lane, and between its key and its data.
function Record.new_texts(start, rank, cost, keep, reports_to)
  if start == moment then
    start = ''
  end
  return ',0,' .. keep .. ',',
    '\0' .. moment .. ',' .. start .. ',' .. rank .. ',' .. cost .. Record.with_comma(reports_to) .. '\0\0\0'
end

-- Whether a text is a finite number. Lua reads hexadecimal digits and spaces as well, which Redis may not.
function Record.is_number(text)
  local number = match(text, '^%-?%d[%d.]*e?[+-]?%d*$') and tonumber(text)
  return number and number - number == 0
end

-- The fields of a record, or nil where it is none: damaged, or written by a stranger.
function Record.parse(record)
  local id, attempts, keep, lane, key = Record.head_of(record)
  if not id or #attempts > 15 or not (keep == '' or Record.is_number(keep)) then
    return nil
  end
  local past, at = nil, string.find(record, '%z') + 1
  local job = {id = id, attempts = attempts, keep = keep, lane = lane, key = key}
  job.created, job.start, job.rank, job.cost, job.reports_to, past, job.reason, at = match(record, DETAILS, at)
  if not at or #job.created > 16 or #job.start > 16 or not Record.is_number(job.rank) then
    return nil
  end
  if job.reports_to ~= '' then
    job.reports_to = match(job.reports_to, '^,(.+)$')
    if not job.reports_to then
      return nil
    end
  end
  job.tries, job.crashes, job.prev, job.taken_at, job.ended_at, job.size, job.worker =
    match(past == '' and NO_PAST or past, PAST)
  if not job.tries or #job.tries > 15 or #job.crashes > 15 then
    return nil
  end
  if job.start == '' then
    job.start = job.created
  end
  job.data = sub(record, at)
  return job
end

function Record.build(job)
  local past = table.concat({job.tries, job.crashes, job.prev, job.taken_at, job.ended_at, job.size, job.worker}, ',')
  return table.concat({job.id, ',', job.attempts, ',', job.keep, ',', job.lane, '\t', job.key, '\0', job.created, ',',
    job.start == job.created and '' or job.start, ',', job.rank, ',', job.cost, Record.with_comma(job.reports_to),
    '\0', past == NO_PAST and '' or past, '\0', job.reason, '\0', job.data})
end

-- A count as a record has it, one higher.
function Record.plus_one(count)
  return format('%d', (tonumber(count) or 0) + 1)
end

-- The job comes back: a new token, and the old start time is remembered.
function Record.give_back(job, start)
  job.attempts, job.prev, job.start = Record.plus_one(job.attempts), job.start, start
end

-- It begins again as if nothing had failed.
function Record.begin_again(job)
  job.tries, job.crashes = '', ''
end

-- The moment at which a job starts, as text: "+ms" is from now, "@moment" that moment, empty is now. The past is now.
function Record.start_of(text)
  local number = tonumber(sub(text, 2)) or 0
  local start = sub(text, 1, 1) == '+' and now + number or number
  return start > now and format('%d', start) or moment
end
