-- Sets jobs aside that a client could not read.
--
-- arguments: now, ids
-- answer: how many
local app = ...
local f = app.field

app.verbs.aside = app.atomic(function(tx, ids)
    local number = 0
    for _, id in ipairs(ids) do
        local job = box.space.accoda_jobs:get(id)
        if job ~= nil and not (job[f.STATE] == app.DEAD and app.unreadable(job) == nil) then
            app.set_aside(tx, job, app.unreadable(job) or 'a field is not what it should be')
            number = number + 1
        end
    end
    return number
end)
