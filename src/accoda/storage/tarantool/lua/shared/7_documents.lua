-- Documents that ended go at once, a few with each call, so that their values take no memory. What is left for a day is
-- their version, in accoda_tombstones, so that versions go on one by one; after that `document_floor` is the highest
-- version of all that were forgotten. New documents begin above it, so that an old version never fits again.
local app = ...
local TOMBSTONE_FOR = 24 * 3600 * 1000
local MOST_AT_ONCE = 100

function app.document_floor()
    local found = box.space.accoda_numbers:get('document_floor')
    return found == nil and 0 or found.value
end

local function forget_tombstones(now)
    local tombstones, highest = box.space.accoda_tombstones, 0
    for _, old in ipairs(tombstones.index.at:select({now - TOMBSTONE_FOR}, {iterator = 'LE', limit = MOST_AT_ONCE})) do
        highest = math.max(highest, tonumber(old.version))
        tombstones:delete(old.name)
    end
    if highest > app.document_floor() then
        box.space.accoda_numbers:replace({'document_floor', highest})
    end
end

function app.tidy_documents(tx)
    local documents = box.space.accoda_documents
    for _, old in ipairs(documents.index.expires_at:select({0}, {iterator = 'GT', limit = MOST_AT_ONCE})) do
        if old.expires_at > tx.now then
            break
        end
        documents:delete(old.name)
        box.space.accoda_tombstones:replace({old.name, old.version, old.expires_at})
    end
    if tx.now > TOMBSTONE_FOR then
        forget_tombstones(tx.now)
    end
end
