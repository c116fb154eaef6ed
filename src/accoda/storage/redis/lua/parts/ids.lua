-- Numbers for `count` new jobs: above all that this shard and (`floor`) the caller have seen. The id is
-- sequence * step + number, where the number (0 on a single server) is the shard's own in a Cluster.
--
-- A counter that is damaged, or gone while jobs are there, goes on from the present moment in milliseconds: no store has
-- given out as many ids as that, so none is given twice.
local function any_jobs(bases)
  for _, base in ipairs(bases) do
    if call('EXISTS', base .. ':ready', base .. ':delayed', base .. ':taken', base .. ':dead', base .. ':done') > 0 then
      return true
    end
  end
end

local function next_ids(ids_key, count, step, number, floor, bases)
  local last = redis.pcall('HINCRBY', ids_key, 'last', count)
  if type(last) == 'table' then
    if find(last.err, 'WRONGTYPE', 1, true) then
      error(last.err)
    end
    floor = math.max(floor, now)
    last = count
  elseif last == count and any_jobs(bases) then
    floor = math.max(floor, now)
  end
  if last - count < floor then
    last = floor + count
    call('HSET', ids_key, 'last', whole(last))
  end
  if step > 1 then
    call('HSETNX', ids_key, 'number', number) -- the shard keeps its first number, whatever a client believes
    local kept = tonumber(call('HGET', ids_key, 'number'))
    if not kept then
      call('HSET', ids_key, 'number', number)
    end
    number = kept or number
  end
  return last - count, number
end
