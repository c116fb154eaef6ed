-- The version of the application that is installed.
--
-- arguments: now (not used)
-- answer: version
local app = ...

app.verbs.version = function()
    return app.version
end
