-- Is something takable? If not, when is the next moment to look again? Moves no job; but results that were kept until now
-- go, so that they go where nobody takes or counts, and what has an endless lease or start is given an end.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width
-- answer:    "now" if something is takable, the milliseconds until the next moment (with a fraction: a sleeper should not
--            be late by what `now` is rounded down; after an 's' where a job starts then), or empty if there is none; then
--            the shard's last sequence number (empty: not known); then the places of queues that could not be looked at,
--            counted from 0
-- uses:      time record leave bucket shelf notes lease kept due
-- later:     ids aside moves
local AGAIN = 10 -- ms until more results go
local soonest, kind, takable, broken = nil, '', false, {}
local function sooner(moment, what)
  if moment and (not soonest or moment < soonest) then
    soonest, kind = moment, what or ''
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
  sooner(first_moment(base .. ':delayed'), 's')
  sooner(first_moment(base .. ':ends'))
end

for n = 2, #KEYS do
  local ok = attempt(look, KEYS[n])
  if not ok then
    broken[#broken + 1] = n - 2
  end
  if takable then
    return {'now', ''}
  end
end
local answer = ''
if soonest and soonest <= now then
  answer = 'now'
elseif soonest and soonest - now < 1e15 then
  local fraction = ARGV[1] == '' and call('TIME')[2] % 1000 / 1000 or 0
  answer = kind .. format('%.3f', soonest - now - fraction)
end
local last = redis.pcall('HGET', (string.gsub(KEYS[1], ':queues$', ':ids')), 'last')
return {answer, not last and '0' or type(last) == 'string' and match(last, '^%d+$') or '', unpack(broken)}
