-- A page of the jobs in a state, by id.
--
-- arguments: now, name of the queue, state, after: an id or nil, limit
-- answer: the jobs' tuples
local app = ...
local f = app.field

app.verbs.browse = app.atomic(function(tx, name, state, after, limit)
    local queue, page = app.find_queue(name), {}
    if queue == nil or limit == 0 then
        return page
    end
    app.apply_due(tx, queue)
    local no, bad = queue[1], {}
    local start = {no, state, after == nil and 0 or after}
    for _, job in box.space.accoda_jobs.index.age:pairs(start, {iterator = after == nil and 'GE' or 'GT'}) do
        if job[f.QUEUE] ~= no or job[f.STATE] ~= state or #page >= limit then
            break
        elseif app.unreadable(job) then
            bad[#bad + 1] = job
            if state == app.DEAD then
                page[#page + 1] = job
            end
        else
            page[#page + 1] = job
        end
        if #bad >= app.DUE_AT_ONCE then
            break
        end
    end
    for _, job in ipairs(bad) do
        app.set_aside(tx, job, app.unreadable(job))
    end
    if after == nil and #page < limit and #bad == 0 then
        app.flush(tx)
        if box.space.accoda_queues:get(no)[app.COUNTS + state] ~= #page then
            app.recount(no) -- this page is all there is, so the counts are wrong
        end
    end
    if state == app.DEAD and #bad > 0 then
        for i, job in ipairs(page) do
            page[i] = box.space.accoda_jobs:get(job[f.ID])
        end
    end
    return page
end)
