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
    local no = queue[1]
    local start = {no, state, after == nil and 0 or after}
    for _, job in box.space.accoda_jobs.index.age:pairs(start, {iterator = after == nil and 'GE' or 'GT'}) do
        if job[f.QUEUE] ~= no or job[f.STATE] ~= state or #page >= limit then
            break
        end
        page[#page + 1] = job
    end
    return page
end)
