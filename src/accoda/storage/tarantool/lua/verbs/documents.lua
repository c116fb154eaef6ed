-- The documents whose name starts with a prefix, by name.
--
-- arguments: now, prefix
-- answer: {{name, value, version, expires_at; 0: never}, …}
local app = ...

app.verbs.documents = app.atomic(function(tx, prefix)
    app.stand_behind()
    app.tidy_documents(tx)
    local found = {}
    for _, document in box.space.accoda_documents:pairs({prefix}, {iterator = 'GE'}) do
        if document.name:sub(1, #prefix) ~= prefix then
            break
        end
        if document.expires_at == 0 or document.expires_at > tx.now then
            found[#found + 1] = document
        end
    end
    return found
end)
