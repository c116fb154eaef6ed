-- Documents that ended go at once, a few with each call, so that their values take no memory. What is left for a day is
-- their version, in accoda_tombstones, so that a version read before does not fit what was written since.
local app = ...
local TOMBSTONE_FOR = 24 * 3600 * 1000
local MOST_AT_ONCE = 100

function app.tidy_documents(tx)
    local documents, tombstones = box.space.accoda_documents, box.space.accoda_tombstones
    for _, old in ipairs(documents.index.expires_at:select({0}, {iterator = 'GT', limit = MOST_AT_ONCE})) do
        if old.expires_at > tx.now then
            break
        end
        documents:delete(old.name)
        tombstones:replace({old.name, old.version, old.expires_at})
    end
    local day_ago = math.max(0, tx.now - TOMBSTONE_FOR)
    for _, old in ipairs(tombstones.index.at:select({day_ago}, {iterator = 'LE', limit = MOST_AT_ONCE})) do
        tombstones:delete(old.name)
    end
end
