-- What a flow is told of the end or the revival of a job that has `reports_to`: a waiter of the job in the queue of flows
-- whose key that is, attached as an enqueue would. See Report in accoda/model.py. A verb notes its reports while it runs;
-- they are stored at the end of its transaction, in the order in which they were noted. They need no whole reserve of
-- memory (5_memory_reserve.lua): a job that ends must be able to, and a removal gives back more than its report takes.
local app = ...
local f = app.field
local REPORTS = 'accoda.flows'
local RESULT_IN_REPORT = 32768 -- bytes, as in accoda/model.py
local ATTACH = 2

local function note(tx, job, kind, size, body)
    local head = string.format(
        '%s %d %d %d %d ', kind, tonumber(job[f.ID]), tonumber(job[f.ATTEMPTS]), tx.now, size
    )
    tx.reports = tx.reports or {}
    table.insert(tx.reports, {
        [1] = 1, [2] = '', [3] = 0, [8] = job[f.REPORTS_TO], [9] = ATTACH, [10] = head .. job[f.KEY] .. '\n' .. body,
    })
end

-- Notes what has become of a job: 'dead', with the reason, 'cancelled', 'removed' or 'revived'.
function app.report(tx, job, kind, reason)
    if job[f.REPORTS_TO] ~= nil then
        note(tx, job, kind, -1, reason or '')
    end
end

-- Notes that a job is done. A large result is not in the report.
function app.report_done(tx, job, result)
    if job[f.REPORTS_TO] == nil then
        return
    elseif result == nil then
        note(tx, job, 'done', -1, '')
    else
        result = tostring(result) -- bytes are no string in 3.x
        note(tx, job, 'done', #result, #result <= RESULT_IN_REPORT and result or '')
    end
end

function app.store_reports(tx)
    app.enqueue(tx, {REPORTS}, tx.reports)
end
