-- Writes a document if it is at the version that the writer expects.
--
-- arguments: now, receipt, name, value, version or nil, ttl in ms or nil
-- answer: {true, new version}, or {false, the version that was found; 0: none}
local app = ...
-- How long an expired document is remembered by itself. Its version is remembered for ever, in `document_floor`: the
-- highest version of all that were forgotten. New documents begin above it, so that an old version never fits again.
local TOMBSTONE_FOR = 24 * 3600 * 1000
local MOST_AT_ONCE = 100

local function floor()
    local found = box.space.accoda_numbers:get('document_floor')
    return found == nil and 0 or found.value
end

local function forget_tombstones(documents, now)
    local highest = 0
    for _, old in ipairs(documents.index.expires_at:select({0}, {iterator = 'GT', limit = MOST_AT_ONCE})) do
        if old.expires_at > now - TOMBSTONE_FOR then
            break
        end
        highest = math.max(highest, old.version)
        documents:delete(old.name)
    end
    if highest > floor() then
        box.space.accoda_numbers:replace({'document_floor', highest})
    end
end

app.verbs.write = app.once(function(tx, name, value, version, ttl)
    local documents = box.space.accoda_documents
    local last = documents:get(name)
    local live = last ~= nil and (last.expires_at == 0 or last.expires_at > tx.now)
    local found = live and last.version or 0
    if version ~= nil and version ~= found then
        app.stand_behind()
        return {false, found}
    end
    local new = (last == nil and floor() or last.version) + 1
    documents:replace({name, value, new, ttl == nil and 0 or tx.now + tonumber(ttl)})
    forget_tombstones(documents, tx.now)
    return {true, new}
end)
