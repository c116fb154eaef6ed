-- Creates the spaces, stores the application in one row, and makes the functions that users may call.
-- Runs by EVAL under an account that may create spaces, functions and roles.
--
-- arguments: version, parts {{name, source}, …} in the order in which they are loaded, verbs {name, …},
--            stub: the body of the functions, with %s where the verb's name goes; revision
-- answer: the revision that is installed now; a newer one is left as it is
local version, parts, verbs, stub, revision = ...

local function space(name, format)
    return box.schema.space.create(name, {if_not_exists = true, format = format})
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
    local found = installed ~= nil and (installed[5] or installed.version) or 0
    if found >= revision then
        return found
    end

    -- The fields are those of JobInfo, in its order; `sort` is what orders a job within its state:
    -- ready: its rank; delayed: its start time; taken: the end of its lease; done: the end of its keeping; dead: 0.
    -- The last two (version 2) are missing where both are 0, as they are in the tuples of version 1. They are of type
    -- `any`: so a space of version 1 takes them without a look at each of its tuples, which could not be one step.
    local fields = {
        {'id', 'unsigned'}, {'queue', 'unsigned'}, {'state', 'unsigned'}, {'data', 'any'}, {'rank', 'number'},
        {'cost', 'unsigned'}, {'key', 'string', is_nullable = true}, {'attempts', 'unsigned'},
        {'created_at', 'unsigned'}, {'start_time', 'unsigned'}, {'prev_start_time', 'unsigned', is_nullable = true},
        {'waiters', 'unsigned'}, {'keep_for', 'number'}, {'worker', 'string', is_nullable = true},
        {'taken_at', 'unsigned', is_nullable = true}, {'sort', 'number'},
        {'ended_at', 'unsigned', is_nullable = true}, {'reason', 'string', is_nullable = true},
        {'result', 'any', is_nullable = true},
        {'fresh_at', 'any', is_nullable = true}, {'crashes', 'any', is_nullable = true},
    }
    local jobs = space('accoda_jobs', fields)
    if #jobs:format() < #fields then
        jobs:format(fields)
    end
    index(jobs, 'primary', true, {1, 'unsigned'})
    index(jobs, 'line', true, {2, 'unsigned', 3, 'unsigned', 16, 'number', 1, 'unsigned'})
    index(jobs, 'age', true, {2, 'unsigned', 3, 'unsigned', 1, 'unsigned'})

    -- Which job holds a key of a queue.
    local keys = space('accoda_keys', {{'queue', 'unsigned'}, {'key', 'string'}, {'job', 'unsigned'}})
    index(keys, 'primary', true, {1, 'unsigned', 2, 'string'})

    local waiters = space('accoda_waiters', {{'job', 'unsigned'}, {'n', 'unsigned'}, {'data', 'any'}})
    index(waiters, 'primary', true, {1, 'unsigned', 2, 'unsigned'})

    -- One row for each queue, with its counts, so that nothing is ever counted by a scan.
    local queues = space('accoda_queues', {
        {'no', 'unsigned'}, {'name', 'string'},
        {'ready', 'unsigned'}, {'delayed', 'unsigned'}, {'taken', 'unsigned'}, {'dead', 'unsigned'},
        {'kept', 'unsigned'},
        {'done', 'unsigned'}, {'retried', 'unsigned'}, {'buried', 'unsigned'}, {'expired', 'unsigned'},
        {'paused', 'boolean'}, {'paused_until', 'unsigned', is_nullable = true},
    })
    index(queues, 'primary', true, {1, 'unsigned'})
    index(queues, 'name', true, {2, 'string'})

    -- expires_at 0: never.
    local documents = space('accoda_documents', {
        {'name', 'string'}, {'value', 'any'}, {'version', 'unsigned'}, {'expires_at', 'unsigned'},
    })
    index(documents, 'primary', true, {1, 'string'})
    index(documents, 'expires_at', false, {4, 'unsigned'})

    local numbers = space('accoda_numbers', {{'name', 'string'}, {'value', 'unsigned'}})
    index(numbers, 'primary', true, {1, 'string'})

    -- The versions of documents that ended (revision 3): see 7_documents.lua.
    local tombstones = space('accoda_tombstones', {{'name', 'string'}, {'version', 'unsigned'}, {'at', 'unsigned'}})
    index(tombstones, 'primary', true, {1, 'string'})
    index(tombstones, 'at', false, {3, 'unsigned'})

    -- A reserve of memory (revision 3): see 6_room.lua.
    if box.space.accoda_ballast == nil then
        local ballast = box.schema.space.create('accoda_ballast', {
            temporary = true, format = {{'n', 'unsigned'}, {'nothing', 'string'}},
        })
        index(ballast, 'primary', true, {1, 'unsigned'})
    end

    -- The order in which jobs ended (revision 3). Those that ended before this space was made are put into it by purge, up
    -- to the id that is the last one now.
    local is_new = box.space.accoda_ended == nil
    local ended = space('accoda_ended', {
        {'queue', 'unsigned'}, {'state', 'unsigned'}, {'at', 'unsigned'}, {'job', 'unsigned'},
    })
    index(ended, 'primary', true, {1, 'unsigned', 2, 'unsigned', 3, 'unsigned', 4, 'unsigned'})
    local last = numbers:get('last_id')
    if is_new and last ~= nil then
        numbers:replace({'ended_until', last[2]})
    end

    -- The last answer to each client in each of its slots: see 4_receipts.lua.
    local receipts = space('accoda_receipts', {
        {'client', 'string'}, {'slot', 'unsigned'}, {'number', 'unsigned'}, {'at', 'unsigned'}, {'answer', 'any'},
    })
    index(receipts, 'primary', true, {1, 'string', 2, 'unsigned'})

    box.schema.role.create('accoda', {if_not_exists = true})
    for _, verb in ipairs(verbs) do
        local name = 'accoda_' .. verb
        box.schema.func.create(name, {if_not_exists = true, setuid = true, body = (stub:gsub('%%s', verb))})
        box.schema.role.grant('accoda', 'execute', 'function', name, {if_not_exists = true})
    end
    local stamp = installed == nil and 1 or installed.stamp + 1
    app:replace({1, version, stamp, parts, revision})
    return revision
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
