-- The version of the application that is installed: what older clients compare with theirs. They go on with any revision
-- of it; newer ones ask for the revision.
--
-- arguments: now (not used), true for the revision
-- answer: version, or revision
local app = ...
local stored = box.space.accoda_app:get(1)
app.revision = stored[5] or stored[2]

app.verbs.version = function(_, revision)
    return revision and app.revision or app.version
end
