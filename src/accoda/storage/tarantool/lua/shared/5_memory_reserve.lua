-- To take and to finish a job the server needs memory, too. So a part of it is held back, as rows of a temporary space
-- that say nothing (accoda_reserve: in no log and no snapshot). What only adds (enqueue, write, follow-ups) goes on while
-- they are there; when memory is full, a verb that frees memory in the end deletes them and has their place. They are put
-- back before anything is added again. So a full queue can always be worked off.
local app = ...
local PIECE = 8000 -- bytes: so small that the server keeps it in slabs of moderate size
local SHARE = 0.05 -- of memtx_memory
local LEAST, MOST = 500, 4000 -- pieces

local function pieces()
    return math.max(LEAST, math.min(MOST, math.floor(SHARE * tonumber(box.cfg.memtx_memory) / PIECE)))
end

-- Makes sure that the reserve is whole, or raises the server's own error: memory is full.
function app.need_reserve()
    local reserve = box.space.accoda_reserve
    if reserve:len() > 0 then
        return
    end
    local nothing = string.rep(' ', PIECE)
    for n = 1, pieces() do
        reserve:replace({n, nothing})
    end
end

-- What can be done when memory is full: Lua lets go of the rows that it has seen, and with `all` the reserve is given up.
function app.free_memory(all)
    local reserve = box.space.accoda_reserve
    for n = 1, all and reserve:len() or 0 do
        reserve:delete(n) -- not by truncate, which gives the memory back later
    end
    collectgarbage()
end
