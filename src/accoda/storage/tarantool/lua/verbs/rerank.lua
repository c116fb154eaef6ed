-- Gives waiting jobs new ranks.
--
-- arguments: now, names {queue, …}, ranks {{queue, id, rank, most waiters or nil}, …}
-- answer: how many were applied
local app = ...
local f = app.field

app.verbs.rerank = app.atomic(function(tx, names, ranks)
    local numbers, applied = app.numbers_of(names), 0
    for _, new in ipairs(ranks) do
        local job = app.job_now(tx, new[2])
        local fits = job ~= nil and job[f.QUEUE] == numbers[new[1]] and job[f.STATE] < app.TAKEN
        if fits and (new[4] == nil or job[f.WAITERS] <= new[4]) then
            local ops = {{'=', f.RANK, new[3]}}
            if job[f.STATE] == app.READY then
                ops[2] = {'=', f.SORT, new[3]}
            end
            box.space.accoda_jobs:update(new[2], ops)
            applied = applied + 1
        end
    end
    return applied
end)
