-- Reads a line in several places: the looks of accoda/storage/density.py.
--
-- arguments: now, name of the queue, looks {{rank, id, how many, down}, …}
-- answer: for each look {ranks, ids, far, beyond}: ready jobs from the place (rank, id) on or, down, before it, backwards;
--         the last id of the last one's rank, in that direction; the rank after that, or nil
local app = ...
local f = app.field
local number = app.number

local function read(no, rank, id, most, direction)
    local ranks, ids, sort = {}, {}, nil
    for _, job in box.space.accoda_jobs.index.line:pairs({no, app.READY, rank, id}, {iterator = direction}) do
        if #ids >= most or job[f.QUEUE] ~= no or job[f.STATE] ~= app.READY then
            break
        end
        sort = job[f.SORT]
        ranks[#ranks + 1], ids[#ids + 1] = number(sort), job[f.ID]
    end
    return ranks, ids, sort
end

app.verbs.stretches = app.atomic(function(_, name, looks)
    local queue, line, answer = app.find_queue(name), box.space.accoda_jobs.index.line, {}
    for i, look in ipairs(looks) do
        local rank, id, most, down = unpack(look)
        local ranks, ids, sort = {}, {}, nil
        if queue ~= nil then
            ranks, ids, sort = read(queue.no, rank, id, most, down and 'LT' or 'GE')
        end
        if sort == nil then
            answer[i] = {ranks, ids, 0, box.NULL}
        else
            local lane = {queue.no, app.READY, sort}
            local far = down and line:min(lane) or line:max(lane)
            local beyond = app.after_rank(queue.no, sort, down and 'LT' or 'GT')
            answer[i] = {ranks, ids, far[f.ID], beyond ~= nil and number(beyond[f.SORT]) or box.NULL}
        end
    end
    return answer
end)
