-- Reports: what a flow is told of its jobs in the step that ends or revives them, see `Report` in accoda/model.py.
--
-- A report is a waiter of the job in the queue REPORTS that holds the key `reports_to`, added last, as a new job would
-- add it. If that queue is in another shard, the reports go to the outbox and are moved on from there.
--
-- Scripts that use this have the outbox as KEYS[4]. ARGV[8] is the run, by its name, with which reports leave; empty:
-- they stay.
local Report = {noted = {}}
local REPORTS, RESULT_IN_REPORT = 'accoda.flows', 32768 -- as in accoda/model.py

-- The body is the result of a job that is done, '=' and bytes or empty, or the reason of a dead one. `place` is that of
-- the outcome.
function Report.note(kind, job, body, place)
  if job.reports_to == '' then
    return
  end
  local size = '-1'
  if kind == 'done' and body ~= '' then
    size, body = format('%d', #body - 1), #body - 1 <= RESULT_IN_REPORT and sub(body, 2) or ''
  end
  local head = table.concat({kind, format('%d', job.id), job.attempts, moment, size, job.key}, ' ')
  Report.noted[#Report.noted + 1] = {key = job.reports_to, text = head .. '\n' .. (body or ''), place = place}
end

-- A job goes, by `Remove` or `purge`. The end of one that was done or cancelled was reported.
function Report.removed(state, record)
  local key = state ~= 'done' and state ~= 'cancelled' and select(5, Record.head_of(record)) or ''
  local job = key ~= '' and Record.parse(record) -- one without a key does not report
  if job then
    Report.note('removed', job)
  end
end

-- Store the runs of jobs in `staying`, and post those in `leaving` (sealed, by the names of their runs), with the
-- reports behind them. A report leaves with the run in `with` for its outcome, if there is one, so that it never arrives before
-- what its job left for the flow. The answer: the runs in the outbox that have reports, with commas.
function Report.send(staying, leaving, with)
  local texts, posted, names = {}, {}, {}
  for _, report in ipairs(Report.noted) do
    local run = with[report.place] or ARGV[8]
    if run == '' then
      local n = #texts
      texts[n + 1], texts[n + 2], texts[n + 3] = report.key, '=' .. report.text, ''
    else
      posted[run] = posted[run] or {leaving[run] or ''}
      table.insert(posted[run], #report.key .. ',' .. #report.text .. ':' .. report.key .. report.text)
    end
  end
  if #texts > 0 then
    local queue = {name = REPORTS, base = sub(KEYS[3], 1, -7) .. REPORTS} -- beside <root>:queues, see keys.py
    staying[#staying + 1] = {count = #texts / 3, queue = queue, mode = 'a', start = moment, rank = '0', cost = '',
      keep = '', reports_to = '', texts = texts, at = 1}
  end
  if #staying > 0 then
    Add.jobs(staying)
  end
  for run, parts in pairs(posted) do
    leaving[run], names[#names + 1] = table.concat(parts), run
  end
  for run, jobs in pairs(leaving) do
    call('HSET', KEYS[4], run, moment .. ' ' .. jobs)
  end
  return table.concat(names, ',')
end
