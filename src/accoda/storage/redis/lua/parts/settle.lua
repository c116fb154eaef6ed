-- One outcome applied to one job whose lease is current.
local function keep_done(base, job, rank, batch, result)
  local notes = notes_of(base, job.id)
  note_run(base, notes, batch)
  notes.ended_at, notes.result = whole(now), result
  write_notes(base, job.id, notes)
  call('ZADD', base .. ':done', job.id, rank .. ',' .. build(job))
  call('ZADD', base .. ':done:at', now, job.id)
  local keep = job.keep * 1000
  local floor = math.floor(keep)
  if keep - floor > 0.5 or (keep - floor == 0.5 and floor % 2 == 1) then -- to the nearest, as the model rounds
    floor = floor + 1
  end
  call('ZADD', base .. ':kept', now + floor, job.id)
end

local function finish(base, job, rank, batch, result)
  free_key(base, job)
  if job.keep ~= '' then
    apply_due(base)
    keep_done(base, job, rank, batch, result)
  elseif job.attempts == '0' then
    call('DEL', base .. ':waiters:' .. job.id) -- it never came back, so nothing else is known of it
  else
    forget_job(base, job.id)
  end
end

local function put_back(base, job, rank, batch, start, reason)
  local notes = notes_of(base, job.id)
  note_run(base, notes, batch)
  notes.reason = '=' .. reason
  write_notes(base, job.id, notes)
  give_back(job, start_of(start))
  wait(base, job, rank)
end

local function bury(base, job, rank, batch, reason)
  local notes = notes_of(base, job.id)
  note_run(base, notes, batch)
  notes.reason, notes.ended_at = '=' .. reason, whole(now)
  write_notes(base, job.id, notes)
  free_key(base, job)
  call('ZADD', base .. ':dead', job.id, rank .. ',' .. build(job))
  call('ZADD', base .. ':dead:at', now, job.id)
end
