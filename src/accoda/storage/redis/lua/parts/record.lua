-- A job's record is one text, so that it travels as one value:
--
--   0000000000000017x1,1700000000000,1700000005000,1700000000000,5,60.0,user-7\0the payload
--   id (16 digits)  ||  created_at    start_time    prev_start    |  |   key
--                   |attempts                                 cost  keep_for (seconds)
--                   flag
--
-- Empty: start_time = created_at; no prev_start_time; cost 0; keep_for 0; no key. The flag is p for a plain job, which
-- leaves nothing behind when it is done (no key, no keep_for, never came back), else x. The id comes first and is as wide
-- as any, so that members of equal score are in the order of their ids.
local match, sub, find, format = string.match, string.sub, string.find, string.format
local HEAD = '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)%a(%d+),(%d+),(%d*),(%d*),(%d*),([^,]*),()'
local MOST_SECONDS = 1e14 -- more than any keep_for

-- A number as we write it: no hex, no spaces, no infinity, which Lua would take as well.
local function good_number(text)
  local number = match(text, '^%-?%d[%d.]*e?[+-]?%d*$') and tonumber(text)
  return number and number - number == 0 and number
end

-- The fields of a record, or nil where it is none of ours: damaged, or written by somebody else.
local function parse(record)
  local id, attempts, created, start, prev, cost, keep, at = match(record, HEAD)
  local zero = at and find(record, '%z', at)
  if not zero or #attempts > 15 or #created > 16 or #start > 16 or #prev > 16 or #cost > 16 then
    return nil
  end
  if keep ~= '' then
    local seconds = good_number(keep)
    if not seconds or seconds < 0 or seconds > MOST_SECONDS then
      return nil
    end
  end
  if start == '' then
    start = created
  end
  return {id = id, attempts = attempts, created = created, start = start, prev = prev, cost = cost, keep = keep,
    key = sub(record, at, zero - 1), data = sub(record, zero + 1)}
end

local function build(job)
  local start = job.start
  if start == job.created then
    start = ''
  end
  return table.concat({job.id, 'x', job.attempts, ',', job.created, ',', start, ',', job.prev, ',', job.cost, ',', job.keep,
    ',', job.key, '\0', job.data})
end

-- Numbers in texts have all their digits: Lua would write 1.7e+12.
local function whole(number)
  return format('%.0f', number)
end

-- The job comes back: a new token, and the old start time remembered.
local function give_back(job, start)
  job.attempts = whole(job.attempts + 1)
  job.prev, job.start = job.start, whole(start)
end

-- When a job starts that was told "+ms" (from now) or "@moment"; empty: now.
local function start_of(text)
  local kind, number = sub(text, 1, 1), tonumber(sub(text, 2))
  if kind == '+' then
    return now + number
  elseif kind == '@' and number > now then
    return number
  end
  return now
end
