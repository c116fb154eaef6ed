-- Changes jobs: each change that fits its job, all in one step. A removal, a revival and a cancellation are reported to the
-- job's flow, if it has one.
--
-- arguments: now, receipt, changes {{kind, id, waiters that were seen or nil, queue or nil, rank}, …}
--            kind: 0 remove, 1 revive, 2 start now, 3 rerank, 4 not crashed, 5 cancel
-- answer: how many were applied
local app = ...
local f = app.field
local DELAYED, TAKEN, DEAD = app.DELAYED, app.TAKEN, app.DEAD
local CANCELLED_FOR = 60 -- as in accoda/model.py

-- Each tells whether the change was applied.
local kinds = {
    [0] = function(tx, job, waiters)
        if waiters ~= nil and job[f.STATE] > TAKEN then
            return false
        end
        app.remove(tx, job)
        return true
    end,
    [1] = function(tx, job)
        local no, key = job[f.QUEUE], job[f.KEY]
        if job[f.STATE] ~= DEAD or (key ~= nil and app.holder(tx, no, key) ~= nil) then
            return false
        end
        if key ~= nil then
            box.space.accoda_keys:replace({no, key, job[f.ID]})
        end
        local ops = app.back_to_queue(job, tx.now, job[f.RANK], tx.now)
        for field, value in pairs({[f.ENDED_AT] = box.NULL, [f.TRIES] = 0, [f.CRASHES] = 0}) do
            ops[#ops + 1] = {'=', field, value}
        end
        app.report(tx, app.move(tx, job, ops), 'revived')
        return true
    end,
    [2] = function(tx, job)
        if job[f.STATE] ~= DELAYED then
            return false
        end
        local state, sort = app.waiting(job[f.LANE], tx.now, job[f.RANK], tx.now)
        app.move(tx, job, {{'=', f.STATE, state}, {'=', f.SORT, sort}, {'=', f.START_TIME, tx.now}})
        return true
    end,
    [3] = function(tx, job, _, rank)
        if job[f.STATE] >= TAKEN then
            return false
        end
        app.rerank(tx, job, rank)
        return true
    end,
    [4] = function(_, job)
        if job[f.STATE] > TAKEN or job[f.CRASHES] == 0 then
            return false
        end
        box.space.accoda_jobs:update(job[f.ID], {{'=', f.CRASHES, job[f.CRASHES] - 1}})
        return true
    end,
    [5] = function(tx, job)
        if job[f.STATE] > TAKEN then
            return false
        end
        if job[f.STATE] == TAKEN and app.plain(job[f.KEEP_FOR]) < CANCELLED_FOR then -- so that its worker is told
            job = box.space.accoda_jobs:update(job[f.ID], {{'=', f.KEEP_FOR, CANCELLED_FOR}})
        end
        app.count(tx, job[f.QUEUE], app.count_of.CANCELLED, 1)
        app.report(tx, job, 'cancelled')
        if app.kept_for(job) == 0 then
            app.forget(tx, job)
        else
            app.keep(tx, job, app.CANCELLED, box.NULL)
        end
        return true
    end,
}

app.verbs.change = app.once(function(tx, changes)
    local applied = 0
    for _, change in ipairs(changes) do
        local kind, id, waiters, name, rank = unpack(change, 1, 5)
        local job = app.balanced(tx, app.current(tx, id))
        local queue = job ~= nil and box.space.accoda_queues:get(job[f.QUEUE]) or nil
        local is_there = job ~= nil and (name == nil or (queue ~= nil and queue.name == name))
        if is_there and not (waiters ~= nil and app.grown(job, waiters)) and kinds[kind](tx, job, waiters, rank) then
            applied = applied + 1
            if queue ~= nil then
                tx.touched[queue.name] = tx.touched[queue.name] or true
            end
        end
        if tx.lanes ~= nil then
            app.balance(tx)
        end
    end
    return applied
end)
