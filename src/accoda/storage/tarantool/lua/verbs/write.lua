-- Writes a document if it is at the version that the writer expects.
--
-- arguments: now, receipt, name, value, version or nil, ttl in ms or nil
-- answer: {true, new version}, or {false, the version that was found; 0: none}
local app = ...

app.verbs.write = app.once(function(tx, name, value, version, ttl)
    app.need_reserve()
    local documents = box.space.accoda_documents
    local last = documents:get(name)
    local live = last ~= nil and (last.expires_at == 0 or last.expires_at > tx.now)
    local found = live and last.version or 0
    if version ~= nil and version ~= found then
        app.stand_behind()
        return {false, found}
    end
    last = last or box.space.accoda_tombstones:get(name)
    local new = (last == nil and 0 or last.version) + 1
    documents:replace({name, value, new, ttl == nil and 0 or tx.now + tonumber(ttl)})
    app.tidy_documents(tx)
    return {true, new}
end, nil, nil, true)
