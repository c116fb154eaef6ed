-- A page of the jobs of a queue in one state, by id.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, state, after (an id; empty: from the first), limit
-- answer:    for each job what parts/locate.lua describes
-- uses:      time record shelf notes lease due kept locate
local base, state, after, limit = KEYS[2], ARGV[5], ARGV[6], tonumber(ARGV[7])
apply_due(base)
forget_kept(base)

local function shelf_page()
  local shelf, ids = base .. ':' .. state, {}
  local from = after == '' and '-inf' or sub(after, 1, width)
  for _, bucket in ipairs(call('ZRANGEBYSCORE', shelf .. ':ids', from, '+inf', 'LIMIT', 0, limit + 1)) do
    local here = call('HKEYS', shelf .. ':ids:' .. bucket)
    table.sort(here)
    for _, digits in ipairs(here) do
      if bucket .. digits > after then
        ids[#ids + 1] = bucket .. digits
      end
    end
    if #ids >= limit then
      break
    end
  end
  return ids
end

local function taken_page()
  local ids = {}
  for _, id in ipairs(call('HKEYS', base .. ':taken')) do
    if id > after then
      ids[#ids + 1] = id
    end
  end
  table.sort(ids)
  return ids
end

local answer = {}
if limit == 0 then
  return answer
elseif state == 'dead' or state == 'done' then
  local from = after == '' and '-inf' or '(' .. after
  for n, member in ipairs(call('ZRANGEBYSCORE', base .. ':' .. state, from, '+inf', 'LIMIT', 0, limit)) do
    local rank, record = match(member, '^([^,]*),(.*)$')
    answer[n] = describe(base, state, record, rank)
  end
else
  local ids = state == 'taken' and taken_page() or shelf_page()
  for n = 1, math.min(limit, #ids) do
    local found, record, rank, batch = locate(base, ids[n])
    answer[n] = describe(base, found, record, rank, batch)
  end
end
return answer
