-- Is something takable? If not, when is the next moment to look again? Moves no job; but results that were kept until now
-- go, so that they go where nobody takes or counts, and what has an endless lease or start is given an end.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width
-- answer:    "now" if something is takable, the milliseconds until the next moment, or empty if there is none; then the
--            places of queues that could not be looked at, counted from 0
-- uses:      time record shelf notes lease kept due
-- later:     ids aside moves
local AGAIN = 10 -- ms until more results go
local soonest, takable, broken = nil, false, {}
local function sooner(moment)
  if moment and (not soonest or moment < soonest) then
    soonest = moment
  end
end

local function look(base)
  local till = paused(base)
  if till then
    sooner(tonumber(till))
    return
  end
  if call('EXISTS', base .. ':ready') == 1 then
    call('ZCARD', base .. ':ready')
    takable = true
    return
  end
  rest().end_the_endless(base)
  local kept = first_moment(base .. ':kept')
  if kept and kept <= now and may_move > 0 then
    rest().forget_kept(base, whole(now))
    sooner(now + AGAIN)
  end
  sooner(first_moment(base .. ':delayed'))
  sooner(first_moment(base .. ':ends'))
end

for n = 2, #KEYS do
  local ok = attempt(look, KEYS[n])
  if not ok then
    broken[#broken + 1] = n - 2
  end
  if takable then
    return {'now'}
  end
end
local answer = ''
if soonest then
  answer = soonest <= now and 'now' or soonest - now < 1e15 and whole(soonest - now) or ''
end
return {answer, unpack(broken)}
