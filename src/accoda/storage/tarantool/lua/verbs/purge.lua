-- Deletes jobs of a queue in a state: at most `limit` in one step, so that a large queue does not stop the server.
--
-- arguments: now, receipt, name of the queue, state, last: the highest id to delete or nil for all there are now, limit,
--            ordered: true for the oldest first (clients that know no age send none), before: a moment or nil
-- answer: {how many, last, whether there are more}
--
-- Jobs that ended are in the order of their ends in accoda_ended, the others in that of their ids, which grow with time.
local app = ...
local f = app.field

-- Jobs that ended before an older application was replaced are not in accoda_ended: they are put there, some with each
-- call, up to the id that was the last one then. Whether any were looked at.
local function catch_up(limit)
    local numbers = box.space.accoda_numbers
    local target, from = numbers:get('ended_until'), numbers:get('ended_from')
    target, from = target == nil and 0 or target[2], from == nil and 0 or from[2]
    if from >= target then
        return false
    end
    local page = box.space.accoda_jobs:select({from}, {iterator = 'GT', limit = limit})
    for _, job in ipairs(page) do
        if job[f.STATE] >= app.DEAD then
            app.note_end(job)
        end
    end
    numbers:replace({'ended_from', #page == limit and page[#page][f.ID] or target})
    return true
end

local function purge_ended(tx, no, state, limit, before)
    if catch_up(app.DUE_AT_ONCE) then
        return {0, 0, true}
    end
    local ended, jobs = box.space.accoda_ended, box.space.accoda_jobs
    local count, rows = 0, ended:select({no, state}, {limit = limit})
    for _, row in ipairs(rows) do
        if before ~= nil and row[3] >= before then
            return {count, 0, false}
        end
        local job = jobs:get(row[4])
        if job ~= nil and job[f.QUEUE] == no and job[f.STATE] == state and (job[f.ENDED_AT] or 0) == row[3] then
            app.forget(tx, job)
            count = count + 1
        end
        ended:delete({row[1], row[2], row[3], row[4]})
    end
    return {count, 0, #rows == limit}
end

app.verbs.purge = app.once(function(tx, name, state, last, limit, ordered, before)
    local queue = app.find_queue(name)
    if queue == nil then
        return {0, 0, false}
    end
    app.apply_due(tx, queue)
    if ordered and state >= app.DEAD then
        return purge_ended(tx, queue[1], state, limit, before)
    end
    if last == nil then
        last = box.space.accoda_numbers:get('last_id')
        last = last == nil and 0 or last[2]
    end
    local found = box.space.accoda_jobs.index.age:select({queue[1], state}, {limit = limit})
    for i, job in ipairs(found) do
        if job[f.ID] > last or (before ~= nil and job[f.CREATED_AT] >= before) then
            return {i - 1, last, false}
        end
        app.forget(tx, job)
    end
    return {#found, last, #found == limit}
end)
