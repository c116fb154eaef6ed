-- Where a job stands in the line of its queue, or in this shard's part of it.
--
-- keys:      queues, then the base of each queue to look in
-- arguments: now, call, forget, width, id
-- answer:    the present moment, place of the queue, how many ready jobs are ahead, how many of these have a higher id,
--            then as parts/locate.lua describes; nothing where there is no such job
-- uses:      time record leave bucket shelf notes lease kept due stand
-- later:     ids aside moves locate present
local locate, describe = rest().locate, rest().describe
local function find_in(base)
  if locate(base, ARGV[5]) then
    apply_due(base)
    local state, record, rank, batch = rest().locate_now(base, ARGV[5]) -- what was kept may be over
    local ahead, newer = 0, 0
    if state == 'ready' or state == 'delayed' then
      ahead, newer = stand(base, rank, ARGV[5])
    end
    return state and {ahead, newer, unpack(describe(base, state, record, rank, batch))}
  end
end

for n = 2, #KEYS do
  local ok, found = attempt(find_in, KEYS[n])
  if ok and found then
    return {whole(now), n - 2, unpack(found)}
  end
end
return {}
