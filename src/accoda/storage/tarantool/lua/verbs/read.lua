-- A document, unless its time to live is over.
--
-- arguments: now, name
-- answer: {{name, value, version, expires_at; 0: never}}, or {}
local app = ...

app.verbs.read = app.atomic(function(tx, name)
    app.stand_behind()
    app.tidy_documents(tx)
    local found = box.space.accoda_documents:get(name)
    if found == nil or (found.expires_at ~= 0 and found.expires_at <= tx.now) then
        return {}
    end
    return {found}
end)
