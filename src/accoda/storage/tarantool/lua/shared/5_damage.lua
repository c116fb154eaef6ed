-- Records that cannot be read. The spaces' formats keep most damage out; what they let through is found here, or by the
-- client (see the verb `aside`), and set aside: a dead job with the reason, of which all is kept that can be.
local app = ...
local msgpack, utf8 = require('msgpack'), require('utf8')
local f = app.field
local MOST_ATTEMPTS = 2 ^ 30 -- above any token that was given out: revived, such a job is nobody's
local MOST_COUNT = 2 ^ 53
local MOST_SECONDS = 1e14

local function finite(number)
    number = tonumber(number)
    return number ~= nil and number - number == 0
end

local function whole(value, most)
    if value == nil then
        return true
    end
    local number = type(value) ~= 'string' and type(value) ~= 'table' and tonumber(value) or nil
    return number ~= nil and number >= 0 and number <= most and number == math.floor(number)
end

local function text(value)
    return value == nil or (type(value) == 'string' and utf8.len(value) ~= nil)
end

-- What is wrong with a field, by its name; nothing where it is sound.
local checks = {
    {f.DATA, 'data is no bytes', function(value) return type(value) == 'string' end},
    {f.RANK, 'rank is not finite', finite},
    {f.KEEP_FOR, 'keep_for is no length of time', function(value)
        return finite(value) and value >= 0 and value <= MOST_SECONDS
    end},
    {f.ATTEMPTS, 'attempts are too many', function(value) return whole(value, MOST_COUNT) end},
    {f.FRESH_AT, 'fresh_at is no number', function(value) return whole(value, MOST_COUNT) end},
    {f.CRASHES, 'crashes is no number', function(value) return whole(value, MOST_COUNT) end},
    {f.STATE, 'state is unknown', function(value) return value <= app.DONE end},
    {f.KEY, 'key is no text', text}, {f.WORKER, 'worker is no text', text}, {f.REASON, 'reason is no text', text},
    {f.RESULT, 'result is no bytes', function(value) return value == nil or type(value) == 'string' end},
}

-- Why a job cannot be read; nil where it can.
function app.unreadable(job)
    for _, check in ipairs(checks) do
        if not check[3](job[check[1]]) then
            return check[2]
        end
    end
end

-- What takes the place of a field that is not sound.
local function instead(job)
    local data = job[f.DATA]
    return {
        [f.DATA] = type(data) == 'string' and data or msgpack.encode(data), [f.RANK] = 0, [f.KEEP_FOR] = 0,
        [f.ATTEMPTS] = MOST_ATTEMPTS, [f.FRESH_AT] = 0, [f.CRASHES] = 0, [f.KEY] = box.NULL, [f.WORKER] = box.NULL,
        [f.RESULT] = box.NULL,
    }
end

function app.set_aside(tx, job, why)
    local id, no, state = job[f.ID], job[f.QUEUE], job[f.STATE]
    local jobs, ops, others = box.space.accoda_jobs, {}, instead(job)
    if state < app.DEAD and job[f.KEY] ~= nil then
        app.free_key(job)
    elseif state >= app.DEAD then
        app.forget_end(job)
    end
    for _, check in ipairs(checks) do
        local field = check[1]
        if type(others[field]) ~= 'nil' and not check[3](job[field]) then -- box.NULL is equal to nil, but not of its type
            ops[#ops + 1] = {'=', field, others[field]}
        end
    end
    for field, value in pairs({
        [f.STATE] = app.DEAD, [f.SORT] = 0, [f.ENDED_AT] = tx.now, [f.REASON] = 'unreadable record: ' .. why,
    }) do
        ops[#ops + 1] = {'=', field, value}
    end
    app.note_end(jobs:update(id, ops))
    if state <= app.DONE then
        app.count(tx, no, app.COUNTS + state, -1)
    end
    app.count(tx, no, app.COUNTS + app.DEAD, 1)
    app.count(tx, no, app.count_of.BURIED, 1)
end
