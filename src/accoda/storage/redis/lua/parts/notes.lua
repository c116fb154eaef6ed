-- What is known of a job beside its record, only once it has run. <base>:notes, id -> five texts with NUL between them:
-- worker ('=' and the name), taken_at, ended_at, reason ('=' and the text), result ('=' and the bytes).
local function notes_of(base, id)
  local text = call('HGET', base .. ':notes', id)
  if not text then
    return {worker = '', taken_at = '', ended_at = '', reason = '', result = ''}
  end
  local worker, taken_at, ended_at, reason, result = match(text, '^(%Z*)%z(%d*)%z(%d*)%z(%Z*)%z(.*)$')
  return {worker = worker, taken_at = taken_at, ended_at = ended_at, reason = reason, result = result}
end

local function write_notes(base, id, notes)
  call('HSET', base .. ':notes', id, table.concat({notes.worker, notes.taken_at, notes.ended_at, notes.reason,
    notes.result}, '\0'))
end
