-- The rules of queues for their lanes, where they are kept, and the groups of queues that share limits. What they mean is in
-- accoda/storage/protocol.py, "Lanes".
--
--   <base>:meta    its field "lanes": the rules, "limit,fair,by_cost,total,own,shared"; own is 1 if lanes have their own.
--                  Its field "paused": the end of the pause; "unbalanced": the mark of the `set_lanes` that has not come to
--                  the end of the lanes yet, so that some may have more in the line and running than their limit
--   <base>:rules   hash: lane -> its own "limit,weight"; the limit is "-" if it is lifted, both are empty if not given
--   <root>:groups  hash: what queues share (`Lanes.shared`) -> their names, with commas
local Rules = {}

-- What the rules are, and the pause. Without rules, or where they cannot be read, all jobs come into the line, by their
-- ranks.
local rules_of = {}
function Rules.of(base)
  local rules = rules_of[base]
  if not rules then
    local paused, text, mark = unpack(call('HMGET', base .. ':meta', 'paused', 'lanes', 'unbalanced'))
    local limit, fair, by_cost, total, own, shared =
      match(text or '', '^(%d*),([01]),([01]),(%d*),([01]),([%w_.-]*)$')
    rules = {paused = paused, is_unbalanced = mark, limit = tonumber(limit), is_fair = fair == '1', by_cost = by_cost == '1',
      total = tonumber(total), has_own = own == '1', shared = shared ~= '' and shared or nil}
    rules_of[base] = rules
  end
  return rules
end

-- They are about to change.
function Rules.forget()
  rules_of = {}
end

-- The bases of the queues that share their limits with this one, itself included, in the order of their names.
function Rules.group(base)
  local rules = Rules.of(base)
  if not rules.group then
    local group, root, has_it = {}, match(base, '^(.*):'), false
    local names = rules.shared and call('HGET', root .. ':groups', rules.shared) or ''
    for name in string.gmatch(names, '[^,]+') do
      local other = root .. ':' .. name
      if Rules.of(other).shared == rules.shared then
        group[#group + 1], has_it = other, has_it or other == base
      end
    end
    rules.group = has_it and group or {base}
  end
  return rules.group
end

-- Whether the queue may give jobs: the end of its pause, empty if that has none (nil: it is not paused), and how many
-- jobs more may run (nil: as many as there are).
function Rules.gate(base)
  local rules = Rules.of(base)
  local till, total = rules.paused, rules.total
  till = till and (till == '' or (#till <= 16 and (tonumber(till) or 0) > now)) and till or nil
  return till, total and math.max(0, total - call('HLEN', base .. ':taken')) or nil
end

-- So many jobs of the queue no longer run: those that wait because `total` of them did may look again.
function Rules.ended(base, count)
  local total = Rules.of(base).total
  local left = total and call('HLEN', base .. ':taken')
  if total and left < total and left + count >= total then
    call('PUBLISH', base .. ':wake', '')
  end
end

-- Wake sleepers: something is ready. One that hears a number needs no look whether there is something to take, unless it
-- has looked since: see wakeups.py.
function Rules.wake(base, ids_key)
  local till, free = Rules.gate(base)
  call('PUBLISH', base .. ':wake', (till or free == 0 or not ids_key) and '' or call('HGET', ids_key, 'last'))
end

-- Texts in the order of their bytes. Lua's own is by the locale of the server; if that is another, hexadecimal digits are
-- in it as well.
local IS_BY_BYTES = 'Z' < 'a' and 'a-b' < 'aa'
local hex = setmetatable({}, {__index = function(known, char)
  known[char] = format('%02x', string.byte(char))
  return known[char]
end})
function Rules.sort(texts)
  local of = {}
  for n, text in ipairs(IS_BY_BYTES and {} or texts) do
    texts[n] = string.gsub(text, '.', hex)
    of[texts[n]] = text
  end
  table.sort(texts)
  for n, code in ipairs(texts) do
    texts[n] = of[code] or code
  end
  return texts
end
