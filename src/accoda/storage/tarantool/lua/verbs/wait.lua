-- Whether something is takable in one of the queues, and if not, how soon it may be.
--
-- arguments: now, names {queue, …}
-- answer: {takable, ms until something is due or nil, starts, paused}: a length of time, so that no client's clock
--         matters; starts: whether a job starts then, unless something happens to it; paused: whether one of them is
local app = ...
local READY, DELAYED, TAKEN = app.READY, app.DELAYED, app.TAKEN

app.verbs.wait = app.atomic(function(tx, names)
    local soonest, starts, paused = math.huge, false, false
    for _, name in ipairs(names) do
        local queue = app.find_queue(name)
        if queue ~= nil then
            local no, moment, start = queue[1], app.paused_until(queue, tx.now), nil
            app.apply_due(tx, queue)
            if moment ~= nil then
                paused = true
            elseif box.space.accoda_jobs.index.line:min({no, READY}) ~= nil and app.room(queue) > 0 then
                moment = tx.now
            else
                start = app.first_due(no, DELAYED)
                moment = math.min(start, app.first_due(no, TAKEN), app.first_due_in_group(queue))
            end
            if moment < soonest then
                soonest, starts = moment, moment == start and queue.total == nil
            end
        end
    end
    if soonest <= tx.now then
        return {true, box.NULL, false, paused}
    end
    return {false, soonest == math.huge and box.NULL or soonest - tx.exact, starts, paused}
end)
