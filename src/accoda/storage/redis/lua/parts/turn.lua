-- Turns: where a job of a lane stands in a line in which lanes take turns, see accoda/storage/protocol.py.
local TURN, NEWCOMER = 2 ^ -40, 1 - 2 ^ -10 -- as in accoda/model.py
local Turn = {}

-- The lowest turn of a level in the queue, and the highest of the lane; false where there is none. Jobs that come in with
-- this step are not stored yet: they are noted here.
function Turn.lowest(step, level)
  local lowest = step.lowest[level]
  if lowest == nil then
    local till = '(' .. format('%.17g', level + 1)
    local found = call('ZRANGEBYSCORE', step.base .. ':turns', format('%.17g', level), till, 'WITHSCORES', 'LIMIT', 0, 1)
    lowest = tonumber(found[2]) or false
    step.lowest[level] = lowest
  end
  return lowest
end

function Turn.highest(step, lane, level)
  local highest = step.highest[level]
  if highest == nil then
    local text = format('%.17g', level)
    local member = level + 1 > level -- else it is of no level, so high is it
      and call('ZREVRANGEBYSCORE', step.base .. ':ready:of:' .. lane, text, text, 'LIMIT', '0', '1')[1]
    highest = member and level + struct.unpack('>d', member) or false
    step.highest[level] = highest
  end
  return highest
end

-- The turn of a job that comes into a fair line.
function Turn.of(step, lane, rank, length)
  local level = floor(rank)
  local highest, lowest = Turn.highest(step, lane, level), Turn.lowest(step, level)
  local turn = highest and highest + length or (lowest or level) + length * NEWCOMER
  if turn >= level + 1 and level + 1 > level then
    turn = level + 1 - TURN
  end
  local its_level = floor(turn)
  if its_level ~= level then -- a level so high that its turns are rounded to the next
    highest, lowest = Turn.highest(step, lane, its_level), Turn.lowest(step, its_level)
  end
  if its_level + 1 > its_level then
    step.highest[its_level] = highest and highest > turn and highest or turn
    step.lowest[its_level] = lowest and lowest < turn and lowest or turn
  end
  return turn
end
