-- What is known of a job beside its record, only once it has run. <base>:notes, id -> five texts with NUL between them:
-- worker ('=' and the name), taken_at, ended_at, reason ('=' and the text), result ('=' and the bytes).
local function read_notes(text)
  if text then
    local worker, taken_at, ended_at, reason, result = match(text, '^(%Z*)%z(%d*)%z(%d*)%z(%Z*)%z(.*)$')
    if worker and #taken_at <= 16 and #ended_at <= 16 then
      return {worker = worker, taken_at = taken_at, ended_at = ended_at, reason = reason, result = result}
    end
  end
  return {worker = '', taken_at = '', ended_at = '', reason = '', result = ''} -- none, or damaged
end

local function notes_of(base, id)
  return read_notes(call('HGET', base .. ':notes', id))
end

local function notes_text(notes)
  return table.concat({notes.worker, notes.taken_at, notes.ended_at, notes.reason, notes.result}, '\0')
end

local function write_notes(base, id, notes)
  call('HSET', base .. ':notes', id, notes_text(notes))
end

-- When a job last began afresh, and how often it crashed since. <base>:afresh, id -> "fresh_at,crashes", only where one
-- of them is not 0. So a job that never came back (attempts 0) has no entry, and one that came back by Retry alone has
-- none either. It is no part of the record, because older clients build records anew without what they do not know.
local function afresh_of(base, ids)
  local entries = values_of(base .. ':afresh', ids)
  for n = 1, #ids do
    entries[n] = entries[n] and match(entries[n], '^%d+,%d+$') and #entries[n] < 32 and entries[n]
  end
  return entries
end

local function begin_afresh(base, job)
  if job.attempts ~= '0' then
    call('HSET', base .. ':afresh', job.id, job.attempts .. ',0')
  end
end

-- The leases of these jobs ended without an outcome.
local function count_crashes(base, ids)
  local entries, args = afresh_of(base, ids), {}
  for n = 1, #ids do
    local fresh_at, crashes = match(entries[n] or '0,0', '^(%d+),(%d+)$')
    args[2 * n - 1], args[2 * n] = ids[n], fresh_at .. ',' .. whole(crashes + 1)
  end
  many('HSET', base .. ':afresh', args)
end
