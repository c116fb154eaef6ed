-- Sets aside taken jobs that a client could not read, of those that it was given.
--
-- keys:      queues, base
-- arguments: now, call, forget, width, then what each began with (16 bytes: its name among the taken ones)
-- answer:    how many were set aside
-- uses:      time record leave bucket shelf notes lease kept
-- later:     ids aside
local base, number = KEYS[2], 0
for at = 5, #ARGV do
  local name = ARGV[at]
  local value = call('HGET', base .. ':taken', name)
  if value then
    local batch, _, record = split_taken(value)
    call('HDEL', base .. ':taken', name)
    rest().set_aside(base, record or value, name, 'a taken job')
    if batch then
      release(base, batch, 1)
    end
    number = number + 1
  end
end
return number
