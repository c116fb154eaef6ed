-- Is something takable? If not, when is the next moment to look again? Changes nothing.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width
-- answer:    "now" if something is takable, the milliseconds until the next moment, or empty if there is none
-- uses:      time record shelf notes lease due
local soonest
local function sooner(moment)
  if moment and (not soonest or tonumber(moment) < soonest) then
    soonest = tonumber(moment)
  end
end
for n = 2, #KEYS do
  local base = KEYS[n]
  local till = paused(base)
  if till then
    sooner(till ~= '' and till or nil)
  else
    if call('EXISTS', base .. ':ready') == 1 then
      return 'now'
    end
    sooner(call('ZRANGE', base .. ':delayed', 0, 0, 'WITHSCORES')[2])
    sooner(call('ZRANGE', base .. ':ends', 0, 0, 'WITHSCORES')[2])
  end
end
if not soonest then
  return ''
end
return soonest <= now and 'now' or whole(soonest - now)
