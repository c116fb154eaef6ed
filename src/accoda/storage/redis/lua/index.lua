-- Puts the dead or done jobs of a queue in the order of their ends anew, a piece at a time. Older clients let jobs end and
-- go without a word to `<base>:dead:at` and `<base>:done:at`; who needs the order and finds that it does not fit calls this.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, state, after (an id; empty: from the first)
-- answer:    the id after which the next piece begins; empty: that was the last
-- uses:      time record leave bucket shelf notes lease kept
-- later:     ids aside locate
local base, state, after, PIECE = KEYS[2], ARGV[5], ARGV[6], 1000
if after == '' then
  call('UNLINK', base .. ':' .. state .. ':at')
end
local page = call('ZRANGEBYSCORE', base .. ':' .. state, after == '' and '-inf' or '(' .. after, '+inf', 'WITHSCORES',
  'LIMIT', 0, PIECE)
local ids, pairs = {}, {}
for n = 1, #page, 2 do
  local _, record = rest().split_ended(base, state, page[n], page[n + 1])
  if record then
    ids[#ids + 1] = sub(record, 1, 16)
  end
end
local notes = values_of(base .. ':notes', ids)
for n = 1, #ids do
  pairs[2 * n - 1] = tonumber(read_notes(notes[n]).ended_at) or 0
  pairs[2 * n] = ids[n]
end
many('ZADD', base .. ':' .. state .. ':at', pairs)
return #page == 2 * PIECE and ids[#ids] or ''
