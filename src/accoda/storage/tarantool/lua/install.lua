-- Creates the spaces, stores the application in one row, and makes the functions that users may call.
-- Runs by EVAL under an account that may create spaces, functions and roles.
--
-- arguments: version, parts {{name, source}, …} in the order in which they are loaded, verbs {name, …},
--            stub: the body of the functions, with %s where the verb's name goes
-- answer: the version that is installed now; a newer one is left as it is
local version, parts, verbs, stub = ...

local function space(name, format, temporary)
    return box.schema.space.create(name, {if_not_exists = true, format = format, temporary = temporary})
end

local function index(on, name, unique, parts_of_it)
    on:create_index(name, {if_not_exists = true, unique = unique, parts = parts_of_it})
end

local function install()
    local app = space('accoda_app', {
        {'id', 'unsigned'}, {'version', 'unsigned'}, {'stamp', 'unsigned'}, {'parts', 'array'},
    })
    index(app, 'primary', true, {1, 'unsigned'})
    local installed = app:get(1)
    if installed ~= nil and installed.version >= version then
        return installed.version
    end

    -- The fields are those of JobInfo, in its order, and `reports_to`; `sort` is what orders a job within its state:
    -- ready: its rank, or its turn in a fair line; held: its rank; delayed: its start time; taken: the end of its lease;
    -- dead, done and cancelled: its end.
    -- Bytes are of type `any`: 2.x keeps them as strings, 3.x as binaries.
    local jobs = space('accoda_jobs', {
        {'id', 'unsigned'}, {'queue', 'unsigned'}, {'state', 'integer'}, {'data', 'any'}, {'rank', 'number'},
        {'cost', 'unsigned'}, {'key', 'string', is_nullable = true}, {'attempts', 'unsigned'},
        {'created_at', 'unsigned'}, {'start_time', 'unsigned'}, {'prev_start_time', 'unsigned', is_nullable = true},
        {'waiters', 'unsigned'}, {'keep_for', 'number'}, {'worker', 'string', is_nullable = true},
        {'taken_at', 'unsigned', is_nullable = true}, {'sort', 'number'},
        {'ended_at', 'unsigned', is_nullable = true}, {'reason', 'string', is_nullable = true},
        {'result', 'any', is_nullable = true}, {'tries', 'unsigned'}, {'crashes', 'unsigned'},
        {'lane', 'string', is_nullable = true}, {'reports_to', 'string', is_nullable = true},
    })
    index(jobs, 'primary', true, {1, 'unsigned'})
    index(jobs, 'line', true, {2, 'unsigned', 3, 'integer', 16, 'number', 1, 'unsigned'})
    index(jobs, 'age', true, {2, 'unsigned', 3, 'integer', 1, 'unsigned'})

    -- The jobs of lanes that are ready, held or taken: see 9_lanes.lua. A space of its own, so that jobs without a lane
    -- are in no further index. `sort` holds that of the job where it is ready, else nothing: an index by the elements of
    -- an array has no entry for an empty one, so held and taken jobs are in neither `turn` nor `line`.
    local lanes = space('accoda_lanes', {
        {'job', 'unsigned'}, {'queue', 'unsigned'}, {'lane', 'string'}, {'state', 'integer'}, {'rank', 'number'},
        {'sort', 'array'},
    })
    index(lanes, 'primary', true, {1, 'unsigned'})
    index(lanes, 'rank', true, {2, 'unsigned', 3, 'string', 4, 'integer', 5, 'number', 1, 'unsigned'})
    local sort = {field = 6, type = 'number', path = '[*]'}
    index(lanes, 'turn', true, {{2, 'unsigned'}, {3, 'string'}, sort, {1, 'unsigned'}})
    index(lanes, 'line', true, {{2, 'unsigned'}, sort, {1, 'unsigned'}})

    -- The rules of a queue for its lanes, in msgpack: `Lanes` in accoda/model.py. `shared` is that of the rules, to find
    -- the queues that share their limits.
    local rules = space('accoda_rules', {
        {'queue', 'unsigned'}, {'rules', 'any'}, {'shared', 'string', is_nullable = true},
    })
    index(rules, 'primary', true, {1, 'unsigned'})
    index(rules, 'shared', false, {{3, 'string', is_nullable = true}, {1, 'unsigned'}})

    -- Which job holds a key of a queue.
    local keys = space('accoda_keys', {{'queue', 'unsigned'}, {'key', 'string'}, {'job', 'unsigned'}})
    index(keys, 'primary', true, {1, 'unsigned', 2, 'string'})

    local waiters = space('accoda_waiters', {{'job', 'unsigned'}, {'n', 'unsigned'}, {'data', 'any'}})
    index(waiters, 'primary', true, {1, 'unsigned', 2, 'unsigned'})

    -- Until when done and cancelled jobs are kept.
    local kept = space('accoda_kept', {{'queue', 'unsigned'}, {'until', 'number'}, {'job', 'unsigned'}})
    index(kept, 'primary', true, {1, 'unsigned', 2, 'number', 3, 'unsigned'})

    -- One row for each queue, with its counts, so that nothing is ever counted by a scan. Counts may be negative: where
    -- jobs were deleted by hand, that is no reason for a call to fail. `total` and `shared` are those of its rules, since
    -- every take asks for them.
    local queues = space('accoda_queues', {
        {'no', 'unsigned'}, {'name', 'string'},
        {'held', 'integer'}, {'ready', 'integer'}, {'delayed', 'integer'}, {'taken', 'integer'}, {'dead', 'integer'},
        {'done', 'integer'}, {'retried', 'integer'}, {'buried', 'integer'}, {'expired', 'integer'},
        {'cancelled', 'integer'}, {'promoted', 'integer'},
        {'paused', 'boolean'}, {'paused_until', 'unsigned', is_nullable = true},
        {'total', 'unsigned', is_nullable = true}, {'shared', 'string', is_nullable = true},
    })
    index(queues, 'primary', true, {1, 'unsigned'})
    index(queues, 'name', true, {2, 'string'})

    -- expires_at 0: never.
    local documents = space('accoda_documents', {
        {'name', 'string'}, {'value', 'any'}, {'version', 'unsigned'}, {'expires_at', 'unsigned'},
    })
    index(documents, 'primary', true, {1, 'string'})
    index(documents, 'expires_at', false, {4, 'unsigned'})

    -- The versions of documents that ended: see 6_documents.lua.
    local tombstones = space('accoda_tombstones', {{'name', 'string'}, {'version', 'unsigned'}, {'at', 'unsigned'}})
    index(tombstones, 'primary', true, {1, 'string'})
    index(tombstones, 'at', false, {3, 'unsigned'})

    local numbers = space('accoda_numbers', {{'name', 'string'}, {'value', 'unsigned'}})
    index(numbers, 'primary', true, {1, 'string'})

    -- The last answer to each client in each of its slots: see 4_repeated_calls.lua.
    local answers = space('accoda_answers', {
        {'client', 'string'}, {'slot', 'unsigned'}, {'number', 'unsigned'}, {'at', 'unsigned'}, {'answer', 'any'},
    })
    index(answers, 'primary', true, {1, 'string', 2, 'unsigned'})

    -- A reserve of memory: see 5_memory_reserve.lua.
    local reserve = space('accoda_reserve', {{'n', 'unsigned'}, {'nothing', 'string'}}, true)
    index(reserve, 'primary', true, {1, 'unsigned'})

    box.schema.role.create('accoda', {if_not_exists = true})
    for _, verb in ipairs(verbs) do
        local name = 'accoda_' .. verb
        box.schema.func.create(name, {if_not_exists = true, setuid = true, body = (stub:gsub('%%s', verb))})
        box.schema.role.grant('accoda', 'execute', 'function', name, {if_not_exists = true})
    end
    app:replace({1, version, installed == nil and 1 or installed.stamp + 1, parts})
    return version
end

-- One transaction: of two clients that install at once, the second finds all of it.
box.begin()
local ok, answer = pcall(install)
if not ok then
    box.rollback()
    error(answer, 0)
end
box.commit()
return answer
