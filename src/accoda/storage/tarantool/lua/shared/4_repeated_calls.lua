-- Verbs that must not be carried out twice, though their caller may have to send them twice.
--
-- A client whose connection broke cannot know whether its call was carried out. So it numbers its calls and sends along
-- a receipt {client, slot, number}; the answer is stored under it in the same transaction. The call sent again finds the
-- answer and changes nothing. A client uses a slot again, with a higher number, only when the call before is over: so
-- there are as many rows as calls were ever under way at once.
local app = ...

local KEEP_FOR = 24 * 3600 * 1000 -- ms that a row outlives its call: no client waits that long for an answer
local CLEAN_EVERY, CLEAN_ROWS = 256, 16

-- Rows of clients that are gone: every now and then a few rows are looked at, from where the last look ended.
local function clean(tx, memory)
    memory.answers = (memory.answers or 0) + 1
    if memory.answers % CLEAN_EVERY ~= 0 then
        return
    end
    local answers = box.space.accoda_answers
    local page = answers:select(memory.cleaned_up_to or {}, {iterator = 'GT', limit = CLEAN_ROWS})
    memory.cleaned_up_to = #page == CLEAN_ROWS and {page[#page].client, page[#page].slot} or nil
    for _, row in ipairs(page) do
        if row.at < tx.now - KEEP_FOR then
            answers:delete({row.client, row.slot})
        end
    end
end

-- Makes a verb of `body(tx, …)` whose second argument, after `now`, is a receipt (nil: it will not be sent again).
-- `remember(answer)` is what is stored of an answer (nil: nothing, because nothing was changed), and
-- `recall(tx, stored, …)` makes the answer of it again; without them it is stored as it is. `grows` is as for app.atomic.
function app.once(body, remember, recall, grows)
    return app.atomic(function(tx, receipt, ...)
        if receipt == nil then
            return body(tx, ...)
        end
        local answers = box.space.accoda_answers
        local client, slot, number = receipt[1], receipt[2], receipt[3]
        local last = answers:get({client, slot})
        if last ~= nil and last[3] == number then
            app.stand_behind() -- the first of the two may still be on its way to the disk
            if recall ~= nil then
                return recall(tx, last[5], ...)
            end
            return last[5]
        end
        if last ~= nil and last[3] > number then
            -- A call that its client has long given up, out of a connection that was believed dead.
            error('accoda: this call was overtaken by a later one')
        end
        local answer = body(tx, ...)
        local stored = answer
        if remember ~= nil then
            stored = remember(answer)
        end
        if stored ~= nil then
            answers:replace({client, slot, number, tx.now, stored})
            clean(tx, app.memory)
        end
        return answer
    end, grows)
end
