-- What every script has: the present moment, and commands with many arguments.
--
-- A script makes its functions anew each time it runs. A function that uses locals of the script costs the more the
-- more of them there are, so those of a part are in a table (`Record`, `Placed`, ...), which is one local.
--
-- Redis writes a number that a script gives it with all the digits of a double, which takes longer than most commands.
-- So what runs often gives texts.
local call, format = redis.call, string.format
-- In milliseconds, as a number and as text: the server's time, or the test clock's where ARGV[1] gives one.
local now
if ARGV[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = tonumber(ARGV[1])
end
local moment = format('%d', now)

local CHUNK = 4000 -- arguments of one command; Lua's stack ends at 8000

-- A command with however many arguments.
local function many(command, key, args)
  for from = 1, #args, CHUNK do
    call(command, key, unpack(args, from, math.min(from + CHUNK - 1, #args)))
  end
end

-- The values of these fields of a hash, however many. With ZMSCORE: the scores of these members of a sorted set.
local function values_of(key, fields, command)
  command = command or 'HMGET'
  if #fields <= CHUNK then
    return #fields > 0 and call(command, key, unpack(fields)) or {}
  end
  local values = {}
  for from = 1, #fields, CHUNK do
    local to = math.min(from + CHUNK - 1, #fields)
    for n, value in ipairs(call(command, key, unpack(fields, from, to))) do
      values[from + n - 1] = value
    end
  end
  return values
end
