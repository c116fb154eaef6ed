-- Everything about one job, in whatever state.
--
-- keys:      queues, then the base of each queue to look in
-- arguments: now, call, forget, width, id
-- answer:    place of the queue, then as parts/locate.lua describes; nothing where there is no such job
-- uses:      time record shelf notes lease due kept locate
for n = 2, #KEYS do
  local base = KEYS[n]
  if locate(base, ARGV[5]) then
    apply_due(base)
    forget_kept(base)
    local state, record, rank, batch = locate(base, ARGV[5]) -- what was kept may be over
    if state then
      return {n - 2, unpack(describe(base, state, record, rank, batch))}
    end
  end
end
return {}
