-- Kept results by their end, for retention. Only they are in it, so no other job pays for it. Dead jobs need none: they
-- are sorted by their end in jobs_line already.
CREATE INDEX jobs_ended ON jobs (queue, ended_at) WHERE state = 4;
