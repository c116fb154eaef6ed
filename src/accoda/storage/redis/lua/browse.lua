-- A page of the jobs of a queue in one state, by id.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, state, after (an id; empty: from the first), limit
-- answer:    the id after which the next page begins (empty: there is none), then for each job what parts/locate.lua
--            describes; a page may be short, because what cannot be read is set aside
-- uses:      time record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate
local base, state, after, limit = KEYS[2], ARGV[5], ARGV[6], tonumber(ARGV[7])
apply_due(base)
local locate, describe, split_ended = rest().locate, rest().describe, rest().split_ended

local function shelf_page()
  local shelf, ids = base .. ':' .. state, {}
  local from = after == '' and '-inf' or sub(after, 1, width)
  for _, bucket in ipairs(call('ZRANGEBYSCORE', shelf .. ':ids', from, '+inf', 'LIMIT', 0, limit + 1)) do
    local key = shelf .. ':ids:' .. bucket
    local here = call('TYPE', key).ok == 'hash' and call('HKEYS', key) or {}
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

-- What is set aside is among the dead then, under its id or a new one, so the page is read again.
local function ended_page()
  local from, page, whole_page = after == '' and '-inf' or '(' .. after, nil, nil
  repeat
    page, whole_page = {''}, true
    local members = call('ZRANGEBYSCORE', base .. ':' .. state, from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
    for n = 1, #members, 2 do
      local rank, record = split_ended(base, state, members[n], members[n + 1])
      if record then
        page[#page + 1] = describe(base, state, record, rank)
        page[1] = #page > limit and sub(record, 1, 16) or ''
      else
        whole_page = false
      end
    end
  until whole_page
  return page
end

local function living_page()
  local ids, page = state == 'taken' and taken_page() or shelf_page(), {''}
  for n = 1, math.min(limit, #ids) do
    local found, record, rank, batch
    if match(ids[n], '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') then
      found, record, rank, batch = locate(base, ids[n])
    end
    if found == state then
      page[#page + 1] = describe(base, found, record, rank, batch)
    end
  end
  page[1] = #ids >= limit and ids[limit] or ''
  return page
end

if limit == 0 then
  return {''}
end
return (state == 'dead' or state == 'done') and ended_page() or living_page()
