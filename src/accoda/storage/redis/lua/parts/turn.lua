-- Turns: where a job of a lane stands in a line in which lanes take turns, see accoda/storage/protocol.py.
local TURN, NEWCOMER = 2 ^ -40, 1 - 2 ^ -10 -- as in accoda/model.py
local Turn = {}

-- The turn of the first (with ZRANGEBYSCORE) or the last stored job of a level; false where there is none.
local function stored(command, key, level)
  local text = level_texts[level]
  local member = level + 1 > level -- else it is of no level, so high is it
    and call(command, key, text, text, 'LIMIT', '0', '1')[1]
  return member and level + struct.unpack('>d', member) or false
end

-- The lowest turn of a level in the queue, and the highest of the lane; false where there is none. Jobs that come in with
-- this step are not stored yet: they are noted here.
function Turn.lowest(step, level)
  if step.lowest[level] == nil then
    step.lowest[level] = stored('ZRANGEBYSCORE', step.base .. ':turns', level)
  end
  return step.lowest[level]
end

function Turn.highest(step, lane, level)
  if step.highest[level] == nil then
    step.highest[level] = step.has_stored and stored('ZREVRANGEBYSCORE', step.base .. ':ready:of:' .. lane, level)
  end
  return step.highest[level]
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
