-- Documents of a shard, the last three of KEYS: a hash: name -> "version,expires_at\0value" (expires_at is empty where
-- it lasts); a sorted set of the names; a sorted set of names by the moment at which something is to be done about
-- them. A document that has ended loses its value, and stays a day without it, so that its versions go on one by one.
local values_key, names_key, ends_key = KEYS[#KEYS - 2], KEYS[#KEYS - 1], KEYS[#KEYS]
local TOMBSTONE = 24 * 3600 * 1000
local TIDY_AT_ONCE = 100

-- Version, expires_at, value, and whether it has ended. Nothing where there is none, or none that can be read.
local function read(name)
  local version, ends, value = string.match(call('HGET', values_key, name) or '', '^(%d+),(%d*)%z(.*)$')
  if version and #version <= 15 and #ends <= 16 then
    return version, ends, value, ends ~= '' and tonumber(ends) <= now
  end
end

-- The empty name holds the highest version of all that were forgotten: versions go on from there.
local function floor()
  local found = call('HGET', values_key, '') or ''
  return #found <= 15 and string.match(found, '^%d+$') and tonumber(found) or 0
end

local function forget_document(name, version)
  call('HDEL', values_key, name)
  call('ZREM', names_key, name)
  call('ZREM', ends_key, name)
  if version and tonumber(version) > floor() then
    call('HSET', values_key, '', version)
  end
end

-- What has ended goes, a few at a time, with every call. HDEL comes first: it is allowed on a full server (see
-- once.lua).
local function tidy()
  for _, name in ipairs(call('ZRANGEBYSCORE', ends_key, '-inf', moment, 'LIMIT', 0, TIDY_AT_ONCE)) do
    local version, ends = read(name)
    if not version or ends == '' or tonumber(ends) <= now - TOMBSTONE then
      forget_document(name, version)
    elseif tonumber(ends) <= now then
      call('HDEL', values_key, name)
      call('HSET', values_key, name, version .. ',' .. ends .. '\0')
      call('ZADD', ends_key, format('%d', ends + TOMBSTONE), name)
    else
      call('ZREM', ends_key, name)
      call('ZADD', ends_key, ends, name)
    end
  end
end
