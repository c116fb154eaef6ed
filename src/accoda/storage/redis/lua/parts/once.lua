-- Makes a verb that a client may send twice (its reply was lost) happen once.
--
-- KEYS[1] is a hash of this client: the number of a call, and its answer. ARGV[2] is the call's number. ARGV[3] lists
-- the numbers whose answers have arrived and need not be remembered any more, after a '*' when the hash is to live on.
-- Calls with an answer are forgotten, some at a time, so the hash is about as small as the number of calls on their way.
local function forget()
  local list = {''} -- never none: the command itself matters, see below
  for number in string.gmatch(ARGV[3], '%d+') do
    list[#list + 1] = number
  end
  call('HDEL', KEYS[1], unpack(list))
end

local function live_on()
  if string.byte(ARGV[3]) == 42 then -- '*'
    call('PEXPIRE', KEYS[1], 3600000)
  end
end

-- The answer of an earlier run of this same call, or nil. `grows` says that the verb may not run on a full server: Redis
-- checks `maxmemory` at a script's first write only, so what comes first decides for the whole script. HDEL is always
-- allowed, and what follows is then never stopped half-way; so jobs can still be taken and finished on a full server.
local function once(grows)
  if not grows then
    forget()
  end
  if call('HSETNX', KEYS[1], ARGV[2], '') == 0 then
    return call('HGET', KEYS[1], ARGV[2])
  end
  if grows then
    forget()
  end
  live_on()
end

local function remember(answer)
  call('HSET', KEYS[1], ARGV[2], answer)
  return answer
end
