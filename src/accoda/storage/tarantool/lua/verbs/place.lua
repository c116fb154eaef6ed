-- Where a job stands in the line of its queue.
--
-- arguments: now, id, most: how many to count on either side
-- answer: {} where there is no such job, else {the present moment, its tuple, its queue, how many are ahead, how many of
--         these have a higher id}, both counted up to `most` and one more; where there are so many, also how many are
--         behind, counted as far, how many are ready, the lowest ranks, up to 65 of them, and the highest
local app = ...
local f = app.field
local number = app.number
local RANKS = 65 -- one more than in accoda/storage/density.py

-- How many ready jobs follow a place of the line in one direction, and how many of these have a higher id.
local function count(no, sort, id, direction, most)
    local found, higher = 0, 0
    for _, job in box.space.accoda_jobs.index.line:pairs({no, app.READY, sort, id}, {iterator = direction}) do
        if job[f.QUEUE] ~= no or job[f.STATE] ~= app.READY or found > most then
            break
        end
        found = found + 1
        if job[f.ID] > id then
            higher = higher + 1
        end
    end
    return found, higher
end

-- Each rank is found behind the one before: as many looks as there are ranks, however many jobs have them.
local function lowest_ranks(no)
    local line, ranks = box.space.accoda_jobs.index.line, {}
    local job = line:min({no, app.READY})
    while job ~= nil and #ranks < RANKS do
        ranks[#ranks + 1] = number(job[f.SORT])
        job = app.after_rank(no, job[f.SORT], 'GT')
    end
    return ranks
end

app.verbs.place = app.atomic(function(tx, id, most)
    local job = app.job_now(tx, id)
    job = job ~= nil and app.up_to_date(tx, job) or nil -- however much else is due
    if job == nil then
        return {}
    end
    app.flush(tx) -- before the counts are read
    local queue = box.space.accoda_queues:get(job[f.QUEUE])
    local no, state = queue.no, job[f.STATE]
    if state ~= app.READY and state ~= app.DELAYED then
        return {tx.now, job, queue.name, 0, 0}
    end
    local sort = state == app.READY and job[f.SORT] or job[f.RANK]
    local ahead, newer = count(no, sort, id, 'LT', most)
    if ahead <= most then
        return {tx.now, job, queue.name, ahead, newer}
    end
    local last = box.space.accoda_jobs.index.line:max({no, app.READY})
    return {
        tx.now, job, queue.name, ahead, newer, (count(no, sort, id, 'GT', most)), queue.ready, lowest_ranks(no),
        number(last[f.SORT]),
    }
end)
