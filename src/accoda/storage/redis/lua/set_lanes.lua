-- Gives a queue other rules for its lanes, and balances the lanes: of the queue, and of those that it shared its limits
-- with before or shares them with now. As many as can be in one step; balance.lua goes on.
--
-- keys:      calls, queues, base
-- arguments: now, call, forget, width, name, mark, rules (or empty: none), then lane, rules of its own for each that has
--            some (both as in parts/rules.lua)
-- answer:    the names of the queues whose lanes are left to be balanced, with commas
-- uses:      server once record placed lease rules lane turn choose line balance due
local earlier = once(false)
if earlier then
  return earlier
end
local base, name, mark, rules = KEYS[3], ARGV[5], ARGV[6], ARGV[7]
local root = match(base, '^(.*):')
local names, is_affected = {name}, {[name] = true}

-- The queue belongs to the group of this name, or no more.
local function join(shared, is_in)
  local members = {is_in and name or nil}
  for each in string.gmatch(call('HGET', root .. ':groups', shared) or '', '[^,]+') do
    members[#members + 1] = each ~= name and each or nil
    names[#names + 1], is_affected[each] = not is_affected[each] and each or nil, true
  end
  if #members == 0 then
    call('HDEL', root .. ':groups', shared)
  else
    call('HSET', root .. ':groups', shared, table.concat(Rules.sort(members), ','))
  end
end

local before = Rules.of(base).shared
if before then
  join(before, false)
end
call('HDEL', base .. ':meta', 'lanes')
call('DEL', base .. ':rules')
if rules ~= '' then
  call('SADD', KEYS[2], name)
  call('HSET', base .. ':meta', 'lanes', rules)
  local own = {}
  for at = 8, #ARGV do
    own[at - 7] = ARGV[at]
  end
  many('HSET', base .. ':rules', own)
end
Rules.forget()
local shared = Rules.of(base).shared
if shared then
  join(shared, true)
  Rules.forget()
end
call('PUBLISH', base .. ':wake', '') -- `total` may be higher

local bases, lanes, is_known, is_all = {}, {}, {}, true
for n, each in ipairs(names) do
  bases[n] = root .. ':' .. each
  local page = call('HSCAN', bases[n] .. ':lanes', '0', 'COUNT', AT_ONCE)
  is_all = is_all and page[1] == '0'
  for at = 1, #page[2], 2 do
    local lane = page[2][at]
    lanes[#lanes + 1], is_known[lane] = not is_known[lane] and lane or nil, true
  end
end
is_all = Lane.balance_some(bases, Rules.sort(lanes)) == #lanes and is_all
for _, each in ipairs(bases) do
  if is_all then
    call('HDEL', each .. ':meta', 'unbalanced')
  else
    call('HSET', each .. ':meta', 'unbalanced', mark)
  end
end
Rules.forget()
Due.apply(base)
Lane.balance()
return remember(is_all and '' or table.concat(names, ','))
