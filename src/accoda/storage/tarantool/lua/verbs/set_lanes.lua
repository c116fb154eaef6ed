-- Gives a queue rules for its lanes, or none, and balances its lanes by them: as many as one step may, so that many lanes
-- do not stop the server. The caller then calls again to balance the next ones.
--
-- arguments: now, name of the queue, rules in msgpack or nil, total: that of the rules or nil, after: the lane up to which
--            the lanes are balanced, or nil: the rules are not set yet
-- answer: the last lane that is balanced, or nil: all are
local app = ...

app.verbs.set_lanes = app.atomic(function(tx, name, rules, total, after)
    local queue = app.find_queue(name)
    if queue == nil and rules == nil then
        return box.NULL
    end
    local no = (queue or app.make_queue(name))[1]
    if after == nil then
        box.space.accoda_queues:update(no, {{'=', 'total', total == nil and box.NULL or total}})
        if rules == nil then
            box.space.accoda_rules:delete(no)
        else
            box.space.accoda_rules:replace({no, rules})
        end
        app.apply_due(tx, no)
        after = '' -- before every name
    end
    tx.touched[name] = true
    return app.balance_page(tx, no, after) or box.NULL
end)
