-- The rules of a queue, and its lanes with most jobs that are ready or held.
--
-- arguments: now, name of the queue, limit; with 0 the rules alone are read, and nothing is counted or applied
-- answer: {rules in msgpack or nil, {{lane, ready, held, taken}, …}, how many such lanes there are}
local app = ...

local function is_first(lane, other)
    local waiting, others = lane[2] + lane[3], other[2] + other[3]
    return waiting > others or (waiting == others and lane[1] < other[1])
end

app.verbs.lanes = app.atomic(function(tx, name, limit)
    local queue = app.find_queue(name)
    if queue == nil then
        return {box.NULL, {}, 0}
    end
    local no, by_rank, found = queue[1], box.space.accoda_lanes.index.rank, {}
    local rules, top = box.space.accoda_rules:get(no), {}
    local stored = rules ~= nil and rules[2] or box.NULL
    if limit == 0 then
        return {stored, top, 0}
    end
    app.apply_due(tx, queue)
    local lane = app.lane_after({no}, '')
    while lane ~= nil do
        local counts = {lane}
        for i, state in ipairs({app.READY, app.HELD, app.TAKEN}) do
            counts[i + 1] = by_rank:count({no, lane, state})
        end
        found[#found + 1] = counts
        lane = app.lane_after({no}, lane)
    end
    table.sort(found, is_first)
    for i = 1, math.min(limit, #found) do
        top[i] = found[i]
    end
    return {stored, top, #found}
end)
