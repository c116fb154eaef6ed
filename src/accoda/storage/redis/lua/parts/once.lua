-- Makes a verb happen once, though a client sends it again because its reply was lost.
--
-- KEYS[1] is a hash of this client: the number of a call, and its answer. ARGV[2] is the call's number. ARGV[3] lists
-- the numbers whose answers have arrived and can be forgotten; a '*' in front renews the time to live of the hash.
local function forget()
  local list = {''} -- never empty: the command itself matters, see `once`
  for number in string.gmatch(ARGV[3], '%d+') do
    list[#list + 1] = number
  end
  call('HDEL', KEYS[1], unpack(list))
end

-- The answer of an earlier run of this same call, or nil. Redis checks `maxmemory` at the first write of a script only,
-- so that write decides for the whole script: HDEL is always allowed, HSETNX is refused on a full server. `grows` says
-- that the verb needs room and has to be refused. The others make room, or end in making it: jobs can still be taken
-- and settled on a full server, and no script stops half-way.
local function once(grows)
  if not grows then
    forget()
  end
  if call('HSETNX', KEYS[1], ARGV[2], '') == 0 then
    return call('HGET', KEYS[1], ARGV[2])
  end
  if grows and ARGV[3] ~= '' then
    forget()
  end
  if string.byte(ARGV[3]) == 42 then -- '*'
    call('PEXPIRE', KEYS[1], '3600000')
  end
end

local function remember(answer)
  call('HSET', KEYS[1], ARGV[2], answer)
  return answer
end
