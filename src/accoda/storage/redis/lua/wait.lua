-- Is something takable? If not, when is the next moment to look again? Moves no job, but kept results whose time is
-- over are deleted, so that they go while workers only wait.
--
-- keys:      queues, then the base of each queue
-- arguments: now, call, forget, width
-- answer:    "now" if something is takable, the milliseconds until the next moment (with a fraction, because `now` is
--            rounded down; after an 's' where a job starts then), or empty if there is none; then the shard's last
--            sequence number
-- uses:      server record placed lease rules lane turn choose line balance due
local AGAIN = 10 -- ms until more results are deleted
local soonest, kind = math.huge, ''
local function sooner(when, what)
  if when and when < soonest then
    soonest, kind = when, what
  end
end

for n = 2, #KEYS do
  local base = KEYS[n]
  local till, free = Rules.gate(base)
  if till then
    sooner(tonumber(till), '')
  elseif free ~= 0 and call('ZCARD', base .. ':ready') > 0 then
    return {'now', ''}
  else
    if may_move > 0 and call('ZCOUNT', base .. ':kept', '-inf', moment) > 0 then
      Lease.unlock(base)
      Due.forget_kept(base)
      sooner(now + AGAIN, '')
    end
    if free ~= 0 then
      sooner(Due.first_moment(base .. ':delayed'), 's')
    end
    for _, each in ipairs(Rules.group(base)) do -- a place in a lane may be free with what is due in another queue
      sooner(each ~= base and Due.first_moment(each .. ':delayed'), '')
      sooner(Due.first_moment(each .. ':ends'), '')
    end
  end
end
local answer = ''
if soonest <= now then
  answer = 'now'
elseif soonest < math.huge then
  local fraction = ARGV[1] == '' and call('TIME')[2] % 1000 / 1000 or 0
  answer = kind .. format('%.3f', soonest - now - fraction)
end
return {answer, call('HGET', (string.gsub(KEYS[1], ':queues$', ':ids')), 'last') or '0'}
