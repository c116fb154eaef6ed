-- A page of the jobs in a state.
--
-- arguments: now, name of the queue, state, by_id: in the order of ids; after {sort, id} or nil, limit
-- answer: the jobs' tuples; in the order of `sort`, dead, done and cancelled ones the other way round
local app = ...
local f = app.field

-- A select that stops where another queue or state begins.
local function page(index, no, state, start, options)
    local found = index:select(start, options)
    while #found > 0 and (found[#found][f.QUEUE] ~= no or found[#found][f.STATE] ~= state) do
        found[#found] = nil
    end
    return found
end

app.verbs.browse = app.atomic(function(tx, name, state, by_id, after, limit)
    local queue = app.find_queue(name)
    if queue == nil then
        return {}
    end
    local no, index = queue[1], box.space.accoda_jobs.index
    app.apply_due(tx, queue)
    if by_id then
        return page(index.age, no, state, {no, state, after == nil and 0 or after[2]}, {iterator = 'GT', limit = limit})
    end
    local backwards = state >= app.DEAD
    if after == nil then
        return index.line:select({no, state}, {iterator = backwards and 'REQ' or 'EQ', limit = limit})
    end
    local options = {iterator = backwards and 'LT' or 'GT', limit = limit}
    return page(index.line, no, state, {no, state, after[1], after[2]}, options)
end)
