-- To take and to finish a job the server needs memory, too. So a part of it is held back, as rows of a temporary space
-- that say nothing (accoda_ballast: in no log and no snapshot). What only adds (enqueue, write, follow-ups) goes on while
-- they are there; when memory is full, a verb that makes room throws them away and has their place. They are put back
-- before anything is added again. So a full queue can always be worked off.
local app = ...
local PIECE = 8000 -- bytes: so small that the server keeps it in slabs of moderate size
local SHARE = 0.05 -- of memtx_memory
local LEAST, MOST = 500, 4000 -- pieces

local function pieces()
    return math.max(LEAST, math.min(MOST, math.floor(SHARE * tonumber(box.cfg.memtx_memory) / PIECE)))
end

-- Makes sure that the reserve is whole, or raises the server's own error: memory is full.
function app.need_room()
    local ballast = box.space.accoda_ballast
    if ballast:len() > 0 then
        return
    end
    local nothing = string.rep(' ', PIECE)
    for n = 1, pieces() do
        ballast:replace({n, nothing})
    end
end

-- What can be done when memory is full: Lua lets go of the rows that it has seen, and the reserve is given away.
function app.make_room(all)
    local ballast = box.space.accoda_ballast
    for n = 1, all and ballast:len() or 0 do
        ballast:delete(n) -- not by truncate, which gives the memory back later
    end
    collectgarbage()
end
