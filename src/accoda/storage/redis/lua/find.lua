-- Everything about one job, in whatever state.
--
-- keys:      queues, then the base of each queue to look in
-- arguments: now, call, forget, width, id
-- answer:    place of the queue, then as parts/locate.lua describes; nothing where there is no such job
-- uses:      time record leave bucket shelf notes lease kept due
-- later:     ids aside moves locate
local locate, describe = rest().locate, rest().describe
local function find_in(base)
  if locate(base, ARGV[5]) then
    apply_due(base)
    local state, record, rank, batch = locate(base, ARGV[5]) -- what was kept may be over
    return state and describe(base, state, record, rank, batch)
  end
end

for n = 2, #KEYS do
  local ok, found = attempt(find_in, KEYS[n])
  if ok and found then
    return {n - 2, unpack(found)}
  end
end
return {}
