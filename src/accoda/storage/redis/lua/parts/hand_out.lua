-- Ready jobs become taken ones. `ranks` is one text where all jobs have that rank, else a table of them.
local concat, format = table.concat, string.format

-- The jobs that were leased, which are the given ones unless two had the same id, and their ranks.
local function hand_out(base, batch, records, ids, ranks)
  local held, size = {}, #ids
  local one = type(ranks) == 'string' and batch .. ',' .. ranks .. ','
  for n = 1, size do
    held[2 * n - 1], held[2 * n] = ids[n], (one or batch .. ',' .. ranks[n] .. ',') .. records[n]
  end
  -- No other taker can have them: a script is one step for the server. The new place is written first, so that nothing is
  -- lost should a command fail, as it does where a key is of another type. Before it comes a command that is allowed on a
  -- full server (see once.lua).
  call('HDEL', base .. ':batches', '')
  if many('HSET', base .. ':taken', held) < size then
    records, ids, ranks = rest().without_doubles(base, records, ids, ranks, held)
  end
  local text = format('%d', now) .. ',' .. concat(ids) .. ',' .. ARGV[9]
  call('ZADD', base .. ':ends', format('%d', now + ARGV[7]), batch)
  call('HSET', base .. ':batches', batch, text, batch .. '#', format('%d', #ids))
  call('ZREMRANGEBYRANK', base .. ':ready', '0', format('%d', size - 1))
  unplace(base .. ':ready', ids)
  return records, ranks
end
