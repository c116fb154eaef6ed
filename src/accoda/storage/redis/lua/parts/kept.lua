-- Jobs that have ended: `<base>:dead` and `<base>:done`, sorted sets of "rank,record" by id; `<base>:kept`, a sorted set
-- of ids by the moment until which a finished job is kept; `<base>:dead:at` and `<base>:done:at`, sorted sets of ids by
-- the moment at which they ended. Older clients do not keep these, so a job may be missing in them, and one in them may
-- be gone: see index.lua.
local function forget_job(base, id)
  call('DEL', base .. ':waiters:' .. id)
  call('HDEL', base .. ':notes', id)
  call('HDEL', base .. ':afresh', id)
end

-- A key is held by the job that waits or runs under it.
local function free_key(base, job)
  if job.key ~= '' and call('HGET', base .. ':keys', job.key) == job.id then
    call('HDEL', base .. ':keys', job.key)
  end
end

local function waiters_of(base, id)
  local number = redis.pcall('LLEN', base .. ':waiters:' .. id)
  return type(number) == 'number' and number or 0 -- else something else lies there
end
