-- Documents of a shard, the last three of KEYS: a hash: name -> "version,expires_at\0value" (expires_at is empty where
-- it lasts); a sorted set of the names; a sorted set of names by the moment at which they end. One that has ended stays a
-- day, so that its versions go on one by one.
local values_key, names_key, ends_key = KEYS[#KEYS - 2], KEYS[#KEYS - 1], KEYS[#KEYS]

local function read(name)
  local text = call('HGET', values_key, name)
  if not text then
    return
  end
  local version, ends, value = string.match(text, '^(%d+),(%d*)%z(.*)$')
  return version, ends, value, ends ~= '' and tonumber(ends) <= now
end
