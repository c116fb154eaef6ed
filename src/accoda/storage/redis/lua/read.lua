-- A document, or all whose names lie in a range.
--
-- keys:      values, names, ends
-- arguments: now, call, forget, width, "one" or "prefix", the name or the prefix
-- answer:    name, value, version, expires_at (or empty), and so on
-- uses:      server document
local names = {ARGV[6]}
if ARGV[5] == 'prefix' then
  if ARGV[6] == '' then
    names = call('ZRANGE', names_key, 0, -1)
  else
    names = call('ZRANGEBYLEX', names_key, '[' .. ARGV[6], '(' .. ARGV[6] .. '\255') -- no name has the byte 255
  end
end
tidy()
local answer = {}
for _, name in ipairs(names) do
  local version, ends, value, over = read(name)
  if version and not over then
    for _, each in ipairs({name, value, version, ends}) do
      answer[#answer + 1] = each
    end
  end
end
return answer
