-- New jobs, as `enqueue` gives them and `settle` its follow-ups: runs of neighbours that differ in nothing but their
-- data, lane, key and waiter. The arguments of a run are
--
--   "count,queue,mode,start,rank,cost,keep_for,reports_to"
--     queue is its number, counted from 1; mode is '-' (no key), or what happens where the key is held: k (keep), p
--     (a new place: rerank), r (replace), a (attach), and then l where the jobs have lanes; start is "+ms", "@moment"
--     or empty
--   for each job the key and the waiter ('=' and the bytes, or empty) with another mode than '-', its lane where the jobs
--   have lanes, its data
--
-- Scripts that use this have ids and queues as KEYS[2] and KEYS[3], and step, number and floor as ARGV[5] to ARGV[7].
local Add = {}
local RUN = '^(%d+),(%d+),(.)(l?),([^,]*),([^,]*),(%d*),([^,]*),(.*)$'

-- The queues that runs number: `names` has their names, with commas, and the last of KEYS are their bases.
function Add.queues_in(names)
  local queues = {}
  for name in string.gmatch(names, '[^,]+') do
    queues[#queues + 1] = {name = name}
  end
  for n, queue in ipairs(queues) do
    queue.base = KEYS[#KEYS - #queues + n]
  end
  return queues
end

-- The run whose arguments begin at `at`, and where the next one begins.
function Add.read_run(at, queues)
  local count, queue, mode, laned, start, rank, cost, keep, reports_to = match(ARGV[at], RUN)
  local run = {count = tonumber(count), queue = queues[tonumber(queue)], mode = mode, laned = laned == 'l',
    start = Record.start_of(start), rank = rank, cost = cost, keep = keep, reports_to = reports_to, texts = ARGV,
    at = at + 1}
  return run, at + 1 + count * ((mode == '-' and 1 or 3) + #laned)
end

-- The first of `count` new ids, and how far they are apart: above all that this shard and (floor) the caller have seen.
-- An id is sequence * step + number, where the number (0 on a single server) is the shard's own in a Cluster.
function Add.next_ids(count)
  local step, number, floor = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
  local last = call('HINCRBY', KEYS[2], 'last', format('%d', count))
  if last - count < floor then
    last = floor + count
    call('HSET', KEYS[2], 'last', format('%d', last))
  end
  if step > 1 then
    call('HSETNX', KEYS[2], 'number', number) -- the shard keeps its first number, whatever a client believes
    number = call('HGET', KEYS[2], 'number')
  end
  return (last - count + 1) * step + number, step
end

-- Jobs of this call that are not stored yet, by queue: they are stored in a few commands, together.
local lots = {}
function Add.lot_of(queue)
  local base = queue.base
  local lot = lots[base]
  if not lot then
    call('SADD', KEYS[3], queue.name) -- from now on it is known
    lot = {ready = {ids = {}, scored = {}}, delayed = {ids = {}, scored = {}},
      was_empty = call('ZCARD', base .. ':ready') == 0}
    lots[base] = lot
  end
  return lot
end

function Add.store(base, lot)
  for _, state in ipairs({'ready', 'delayed'}) do
    if #lot[state].ids > 0 then
      if state == 'delayed' then
        lot.soonest = lot.soonest or Due.first_moment(base .. ':delayed') or math.huge
      end
      lot.any_ready = lot.any_ready or state == 'ready'
      Placed.add(base, state, lot[state].ids, lot[state].scored)
      lot[state] = {ids = {}, scored = {}}
    end
  end
end

-- Store what is left, and wake sleepers: for a first ready job, or a sooner start. What is stored ends the work of this
-- step but for the lanes.
function Add.store_all()
  for base, lot in pairs(lots) do
    Add.store(base, lot)
    if lot.any_ready and lot.was_empty then
      Rules.wake(base, KEYS[2])
    elseif lot.soonest and (Due.first_moment(base .. ':delayed') or lot.soonest) < lot.soonest then
      call('PUBLISH', base .. ':wake', '')
    end
  end
  Lane.balance(KEYS[2])
end

function Add.add_waiter(base, id, waiter)
  if waiter == '' then
    return Job.waiters_of(base, id)
  end
  return call('RPUSH', base .. ':waiters:' .. id, sub(waiter, 2))
end

function Add.replace(base, run, data, id, state, record, batch, taken_at)
  local job = Record.parse(record)
  if state == 'taken' then
    -- The run of the old data is over: its token no longer fits, so its outcome cannot settle the new data.
    Lease.note_run(base, job, batch, taken_at)
    Record.give_back(job, run.start)
  end
  Job.lift(base, id, state, record, batch)
  Record.begin_again(job)
  job.start, job.rank, job.cost, job.keep, job.data = run.start, run.rank, run.cost, run.keep, data
  Job.line_up(base, job)
end

-- What to answer for a job with a key, and whether it is stored as a new one, which holds the key from now on. A job
-- that was found to hold a key does so until the end of the script, since adding jobs ends none: so of a thousand that
-- attach to it only the first looks for it.
local holders = {}
function Add.join(base, id, run, key, waiter, data)
  Due.apply(base)
  local held = call('HGET', base .. ':keys', key)
  if held and (run.mode == 'r' or run.mode == 'p' or not holders[base .. held]) then
    Add.store(base, lots[base]) -- its holder may be of this call
    local state, record, batch, taken_at = Job.locate_now(base, held)
    if not WAITING[state] or not Record.parse(record) then
      held = nil -- gone, or damaged
    elseif run.mode == 'r' then
      Add.replace(base, run, data, held, state, record, batch, taken_at)
    elseif run.mode == 'p' then
      Job.rerank(base, state, record, Record.parse(record), run.rank, batch, taken_at)
    end
  end
  if not held then
    call('HSET', base .. ':keys', key, id)
    holders[base .. id] = true
    return waiter ~= '' and id .. 'c' .. Add.add_waiter(base, id, waiter) or nil, true
  end
  holders[base .. held] = true
  local waits = run.mode == 'r' or run.mode == 'a'
  local waiters = not waits and Job.waiters_of(base, held) or Add.add_waiter(base, held, waiter)
  return held .. run.mode .. waiters, false
end

-- Store the jobs of these runs. The answer: the first id where nothing else is to be told, for then they follow each
-- other; else for each job id, what (c, k, p, r, a) and the number of waiters, with commas.
function Add.jobs(runs)
  local count, n, said, any_said = 0, 0, {}, false
  for _, run in ipairs(runs) do
    count = count + run.count
  end
  local first, step = Add.next_ids(count)
  for _, run in ipairs(runs) do
    local base, texts, at = run.queue.base, run.texts, run.at
    local state = run.start == moment and 'ready' or 'delayed'
    local score = state == 'ready' and run.rank or run.start
    local before_lane, after_key = Record.new_texts(run.start, run.rank, run.cost, run.keep, run.reports_to)
    local before_key = before_lane .. '\t'
    local lot = Add.lot_of(run.queue)
    for _ = 1, run.count do
      local id, key, is_new, lane = format('%016d', first + n * step), '', true, nil
      n = n + 1
      if run.mode ~= '-' then
        key = texts[at]
        said[n], is_new = Add.join(base, id, run, key, texts[at + 1], texts[at + (run.laned and 3 or 2)])
        any_said = any_said or said[n]
        at = at + 2
      end
      if run.laned then
        lane = texts[at]
        before_key = before_lane .. lane .. '\t'
        at = at + 1
      end
      if is_new and lane and state == 'ready' then
        Lane.come(base, lane, id, run.rank, run.cost, id .. before_key .. key .. after_key .. texts[at])
      elseif is_new then
        local ids, scored = lot[state].ids, lot[state].scored
        local size = #ids + 1
        ids[size], scored[2 * size - 1], scored[2 * size] = id, score, id .. before_key .. key .. after_key .. texts[at]
      end
      at = at + 1
    end
  end
  Add.store_all()
  if not any_said then
    return format('%016d', first)
  end
  for each = 1, n do
    said[each] = said[each] or format('%016dc0', first + (each - 1) * step)
  end
  return table.concat(said, ',')
end
