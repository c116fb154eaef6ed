-- New jobs, as `enqueue` gives them and `settle` its follow-ups.
--
-- The arguments of a job are three texts, or five if it has a key:
--   place   the number of its queue, counted from 1: a plain job, ready at once; or "number mode start", where mode is
--           '-' (no key), or what happens where the key is held: k (keep), r (replace), a (attach); start is empty,
--           "+ms" or "@moment"
--   rank    as text
--   tail    the end of its record: "cost,keep_for,key\0data"
--   key     (only with a mode of k, r, a)
--   waiter  (likewise) '=' and the bytes, or empty
local function read_job(args, at)
  local place = args[at]
  local queue, mode, start = match(place, '^(%d+) (.)(.*)$')
  local job = {queue = tonumber(queue or place), plain = not queue, mode = mode or '-', start = start or '',
    rank = args[at + 1], tail = args[at + 2]}
  if job.mode == '-' then
    return job, at + 3
  end
  job.key, job.waiter = args[at + 3], args[at + 4]
  return job, at + 5
end

local function add_waiter(base, id, waiter)
  if waiter == '' then
    return waiters_of(base, id)
  end
  local key = base .. ':waiters:' .. id
  local number = redis.pcall('RPUSH', key, sub(waiter, 2))
  if type(number) == 'table' then
    call('DEL', key) -- something else lay there
    number = call('RPUSH', key, sub(waiter, 2))
  end
  return number
end

-- The key is held: what becomes of the newcomer. nil where its holder is none: unreadable, gone, or ended. Who was found to
-- be there is there until the end of the script, since adding jobs ends none; so of a thousand that attach to one job only
-- the first looks for it.
local living = {}
local function join(base, id, new)
  local state, record, _, batch
  if living[base .. id] and new.mode ~= 'r' then
    state = 'living'
  elseif match(id, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') then
    state, record, _, batch = locate(base, id)
  end
  if not state or state == 'dead' or state == 'done' then
    return nil
  end
  living[base .. id] = true
  if new.mode == 'k' then
    return id .. 'k' .. waiters_of(base, id)
  end
  local waiters = add_waiter(base, id, new.waiter)
  if new.mode == 'a' then
    return id .. 'a' .. waiters
  end
  local job = parse(record)
  if state == 'taken' then
    -- The run of the old data is over: its token no longer fits, so its outcome cannot settle the new data.
    local notes = notes_of(base, id)
    note_run(base, notes, batch)
    write_notes(base, id, notes)
    call('HDEL', base .. ':taken', id)
    release(base, batch, 1)
    give_back(job, now)
  else
    unshelve(base, state, record)
  end
  begin_afresh(base, job)
  job.start = whole(start_of(new.start))
  job.cost, job.keep = match(new.tail, '^(%d*),([^,]*),')
  job.data = sub(new.tail, find(new.tail, '%z') + 1)
  wait(base, job, new.rank)
  return id .. 'r' .. waiters
end

-- Add one job that is not plain. Stored at once, so that a second job of the call finds its key.
local function add_one(base, id, new)
  if new.key then
    apply_due(base)
    local held = call('HGET', base .. ':keys', new.key)
    local said = held and join(base, held, new)
    if said then
      return said
    end
    call('HSET', base .. ':keys', new.key, id)
  end
  local cost, keep, at = match(new.tail, '^(%d*),([^,]*),()')
  local zero = find(new.tail, '%z', at)
  wait(base, {id = id, attempts = '0', created = whole(now), start = whole(start_of(new.start)), prev = '', cost = cost,
    keep = keep, key = sub(new.tail, at, zero - 1), data = sub(new.tail, zero + 1)}, new.rank)
  return id .. 'c' .. (new.key and add_waiter(base, id, new.waiter) or 0)
end

-- Plain jobs of one queue, all in a few commands.
local was_empty = {}
local function add_plain(base, pairs, ids, ranks)
  shelve(base .. ':ready', pairs, ids, ranks)
  if was_empty[base] then
    call('PUBLISH', base .. ':wake', '')
  end
end

-- The bases of the queues in `names` (with commas), which are the last of KEYS. A key of another type shows here, before
-- anything is changed.
local function bases_of(names)
  local bases, n = {}, #KEYS - select(2, string.gsub(names, '[^,]+', ''))
  for _ in string.gmatch(names, '[^,]+') do
    n = n + 1
    local base = KEYS[n]
    bases[#bases + 1] = base
    was_empty[base] = call('ZCARD', base .. ':ready') == 0
    call('ZCARD', base .. ':ready:ids')
  end
  return bases
end

-- From now on these queues are known.
local function open_queues(queues, names)
  for name in string.gmatch(names, '[^,]+') do
    call('SADD', queues, name)
  end
end

-- Add jobs whose arguments are `args` from `at` on; `bases[n]` is queue n. Gives what became of those that are not plain, by
-- their places; nil where all are plain.
local function add_all(bases, args, at, count, sequence, step, number)
  local tail_of_head = '0,' .. whole(now) .. ',,,'
  local said, lines, plain = {}, {}, true
  local n = 0
  while n < count do
    n = n + 1
    local id = format('%016.0f', (sequence + n) * step + number)
    local line = lines[args[at]]
    if not line then
      local place = args[at]
      if find(place, ' ', 1, true) then
        plain = false
        local new
        new, at = read_job(args, at)
        said[n] = add_one(bases[new.queue], id, new)
      else
        line = {base = bases[tonumber(place)], pairs = {}, ids = {}, ranks = {}}
        lines[place] = line
      end
    end
    if line then
      local rank, size = args[at + 1], #line.ids + 1
      line.ids[size], line.ranks[size] = id, rank
      line.pairs[2 * size - 1], line.pairs[2 * size] = rank, id .. 'p' .. tail_of_head .. args[at + 2]
      at = at + 3
    end
  end
  for _, line in pairs(lines) do
    add_plain(line.base, line.pairs, line.ids, line.ranks)
  end
  return not plain and said or nil
end

-- One text for each job (id, c/k/r/a, waiters), or the first id alone where all are plain: the ids then follow each other.
local function tell(said, count, sequence, step, number)
  if not said then
    return format('%016.0f', (sequence + 1) * step + number)
  end
  for n = 1, count do
    said[n] = said[n] or format('%016.0fc0', (sequence + n) * step + number)
  end
  return table.concat(said, ',')
end
