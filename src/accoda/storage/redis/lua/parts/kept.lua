-- Jobs that have ended: `<base>:dead` and `<base>:done`, sorted sets of "rank,record" by id; `<base>:kept`, a sorted set
-- of ids by the moment until which a finished job is kept.
local function forget_job(base, id)
  call('DEL', base .. ':waiters:' .. id)
  call('HDEL', base .. ':notes', id)
  call('HDEL', base .. ':afresh', id)
end

local function forget_kept(base)
  local first = call('ZRANGE', base .. ':kept', 0, 0, 'WITHSCORES')[2]
  if not first or tonumber(first) > now then
    return
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', base .. ':kept', '-inf', now)) do
    call('ZREMRANGEBYSCORE', base .. ':done', id, id)
    forget_job(base, id)
  end
  call('ZREMRANGEBYSCORE', base .. ':kept', '-inf', now)
end

-- A key is held by the job that waits or runs under it.
local function free_key(base, job)
  if job.key ~= '' and call('HGET', base .. ':keys', job.key) == job.id then
    call('HDEL', base .. ':keys', job.key)
  end
end
