-- The body of every stored function, the same for ever: it runs the verb of whatever application is stored now, so an
-- upgrade is one new row. The functions run as the account that installed them (setuid): callers need no right to any
-- space. `%s` is the verb.
function(...)
    local stored = box.space.accoda_app:get(1)
    local app = rawget(_G, '_accoda')
    if app == nil or app.stamp ~= stored[3] then
        -- Nothing in here yields, so no other fiber can see an application that is half loaded.
        local previous = app
        app = {verbs = {}, version = stored[2], stamp = stored[3], memory = previous and previous.memory or {}}
        for _, part in ipairs(stored[4]) do
            assert(loadstring(part[2], '=accoda/' .. part[1]))(app)
        end
        rawset(_G, '_accoda', app)
    end
    return app.verbs.%s(...)
end
