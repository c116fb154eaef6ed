-- Where a job stands, or would stand, among the ready ones of a queue: these are in the order of rank and id, and a sorted
-- set knows how many lie before a score, so nothing is estimated but, in a long line of many ranks, who is newer.
local LANES = 16 -- so many ranks are looked at one by one
local SAMPLE = 100 -- then so many records

-- How many of the records from place `low` to before `high`, all of one score, have a lower id: found by halving.
local function below(shelf, low, high, id)
  local first = low
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sub(call('ZRANGE', shelf, middle, middle)[1], 1, 16) < id then
      low = middle + 1
    else
      high = middle
    end
  end
  return low - first
end

-- How many of the records from place `from` to before `to` have a higher id: all are looked at, or an even sample.
local function sampled(shelf, from, to, id)
  local size, found = to - from, 0
  local looks = math.min(size, SAMPLE)
  for n = 0, looks - 1 do
    local place = from + math.floor((2 * n + 1) * size / (2 * looks))
    if sub(call('ZRANGE', shelf, place, place)[1], 1, 16) > id then
      found = found + 1
    end
  end
  return looks == 0 and 0 or math.floor(found * size / looks + 0.5)
end

-- How many are ahead, and how many of these have a higher id: of one's own rank none has.
local function stand(base, rank, id)
  local shelf = base .. ':ready'
  local lower = call('ZCOUNT', shelf, '-inf', '(' .. rank)
  local ahead = lower + below(shelf, lower, lower + call('ZCOUNT', shelf, rank, rank), id)
  local newer, place = 0, 0
  for _ = 1, LANES do
    if place >= lower then
      break
    end
    local score = call('ZRANGE', shelf, place, place, 'WITHSCORES')[2]
    local after = call('ZCOUNT', shelf, '-inf', score)
    newer = newer + (after - place) - below(shelf, place, after, id)
    place = after
  end
  return ahead, newer + sampled(shelf, place, math.max(place, lower), id)
end

