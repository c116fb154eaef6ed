-- Gives a queue rules for its lanes, or none, and balances its lanes by them, and those of the queues that share its limits
-- or did so before: as many as one step may, so that many jobs do not stop the server. The caller then calls again with
-- what is left.
--
-- arguments: now, receipt, name of the queue, rules in msgpack or nil, total and shared: those of the rules or nil, left:
--            the last answer, or nil: the rules are not set yet
-- answer: nil where all lanes are balanced, else {the numbers of the queues that are left, the last lane of the first of
--         them that is balanced}
local app = ...

-- Sets the rules; what is to be balanced by them.
local function begin(tx, queue, rules, total, shared)
    local other = app.set_rules(queue.no, rules, total, shared)
    app.apply_due_of(tx, queue.no)
    return {queue.no, other}, ''
end

app.verbs.set_lanes = app.once(function(tx, name, rules, total, shared, left)
    local queue = app.find_queue(name)
    if queue == nil and rules == nil then
        return box.NULL
    end
    local queues, lane
    if left == nil then
        queues, lane = begin(tx, queue or app.make_queue(name), rules, total, shared)
    else
        queues, lane = left[1], left[2]
    end
    tx.touched[name] = true
    lane = app.balance_page(tx, queues[1], lane)
    if lane ~= nil then
        return {queues, lane}
    elseif queues[2] ~= nil then
        return {{queues[2]}, ''} -- before every name
    end
    return box.NULL
end)
