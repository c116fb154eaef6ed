-- Which jobs of a lane are in the line: of those that are ready, held or become ready, the first in the order of rank and
-- id, over all queues of a group. `sides` are the steps of these queues: mostly one.
local AT_ONCE = 1000 -- so many held jobs of a lane come in with one step at most, and so many are held back
Lane.moved = 0 -- jobs that came in or were held back so far

-- The held jobs of a lane in one queue, best first, one with each call. One without a record is left over from damage.
local function held_in(step, lane, size)
  local key, from, page, at = step.base .. ':held:of:' .. lane, 0, {}, 0
  local function next_job()
    at = at + 1
    if not page[at] then
      local found, ids, missing = call('ZRANGE', key, from, from + size - 1, 'WITHSCORES'), {}, {}
      for n = 1, #found / 2 do
        ids[n] = found[2 * n - 1]
      end
      page, at = {}, 1
      for n, record in ipairs(Placed.held_records(step.base, ids)) do
        if record then
          page[#page + 1] = {step = step, lane = lane, id = ids[n], rank = found[2 * n], record = record, was_held = true}
        else
          missing[#missing + 1] = ids[n]
        end
      end
      many('ZREM', key, missing)
      from, size = from + #page, 100
      if #page == 0 and #missing > 0 then
        return next_job()
      end
    end
    return page[at]
  end
  return next_job
end

-- The same of all queues.
function Lane.held_jobs(sides, lane, size)
  if #sides == 1 then
    return held_in(sides[1], lane, size)
  end
  local sources, heads = {}, {}
  for n, step in ipairs(sides) do
    sources[n] = step.any_held and held_in(step, lane, size) or nil
  end
  return function()
    local best
    for n, source in pairs(sources) do
      heads[n] = heads[n] or source()
      if not heads[n] then
        sources[n] = nil
      elseif not best or Lane.place(heads[n]) < Lane.place(heads[best]) then
        best = n
      end
    end
    local job = best and heads[best]
    heads[best or 0] = nil
    return job
  end
end

-- The places of the ready jobs of a lane by rank and id, from the best to the worst, and the steps of their queues.
function Lane.ready_places(sides, lane)
  local places, of = {}, {}
  for _, step in ipairs(sides) do
    for _, member in ipairs(call('ZRANGE', step.base .. ':ready:of:' .. lane, '0', '-1')) do
      local place = sub(member, -16) .. sub(member, 9, -17)
      places[#places + 1], of[place] = place, step
    end
  end
  table.sort(places)
  return places, of
end

-- The last of the line, of a lane with so many that to put all of them in order would take long. They need not be the worst:
-- the next steps exchange them.
function Lane.last(sides, lane)
  local back = {}
  for _, step in ipairs(sides) do
    for _, member in ipairs(call('ZREVRANGE', step.base .. ':ready:of:' .. lane, '0', AT_ONCE - 1 - #back)) do
      back[#back + 1] = {step = step, lane = lane, id = sub(member, 9, -17)}
    end
    if #back == AT_ONCE then
      break
    end
  end
  return back
end

-- Which jobs of a lane have to leave the line, and which come in, where `free` more may. Those of `coming`, best first,
-- that do not come in are to be held. Of one queue, no job that was held before is better than a ready one, unless some
-- of this step are held already, or the limit is a new one (`is_mixed`).
function Lane.choose(sides, lane, coming, free)
  if free < -AT_ONCE then
    Lane.moved = Lane.moved + AT_ONCE
    return Lane.last(sides, lane), {}
  end
  local back, into, at, from_held, places, of = {}, {}, 1, 0, nil, nil
  local function hold_worst(place) -- of the ready ones, if it is behind this place; whether it is
    if not places then
      places, of = Lane.ready_places(sides, lane)
    end
    local worst = places[#places]
    if not worst or worst <= place or #back == AT_ONCE then
      return false
    end
    places[#places], free = nil, free + 1
    back[#back + 1] = {step = of[worst], lane = lane, id = sub(worst, -16)}
    return true
  end
  while free < 0 and hold_worst('') do end
  local is_mixed = #sides > 1 or sides[1].is_mixed
  local next_held = Lane.held_jobs(sides, lane, math.max(1, math.min(free, 100)))
  local held = (free > 0 or is_mixed) and next_held()
  while held or coming[at] do
    local new = coming[at]
    local best = (not new or (held and Lane.place(held) < Lane.place(new))) and held or new
    if (best == held and from_held == AT_ONCE) or (free <= 0 and not hold_worst(Lane.place(best))) then
      break
    end
    into[#into + 1], free = best, free - 1
    if best == new then
      at = at + 1
    else
      from_held = from_held + 1
      held = (free > 0 or new or is_mixed) and next_held()
    end
  end
  Lane.moved = Lane.moved + #back + from_held
  return back, into
end
