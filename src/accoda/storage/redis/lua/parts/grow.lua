-- Redis finds the members of a sorted set by a table that doubles at each power of two. It then moves to the new one, a bit
-- with each access, and for as long as that takes every access is slower, up to twice: also those of takers, and also when
-- nobody adds any more. The work is the same whoever does it. So who adds to a large set above a power of two does more
-- than his share: he asks for a member that is not there, which moves as much as any other access. Then the move is over
-- sooner: by count of its steps, when the set has grown by a tenth. It begins later, and rests, while the server writes a
-- snapshot or its log anew, and a script cannot see how far it is: so he goes on until the set has grown by half.
local SHARE = 6 -- looks for each job; one job that is added makes two by itself

local function grow(shelf, count)
  local nothing = {}
  for n = 1, math.min(SHARE * count, CHUNK) do
    nothing[n] = ''
  end
  for from = 1, SHARE * count, CHUNK do
    call('ZMSCORE', shelf, unpack(nothing, 1, math.min(CHUNK, SHARE * count - from + 1)))
  end
end

