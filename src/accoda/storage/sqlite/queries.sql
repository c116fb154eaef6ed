-- States are written as numbers so that the partial indexes apply: -1 held, 0 ready, 1 delayed, 2 taken, 3 dead,
-- 4 done, 5 cancelled.
-- `UPDATE OR ROLLBACK` where many jobs are changed: to undo a statement that fails half-way SQLite would copy every page
-- into a file first. Here each failure ends the whole transaction anyway.

-- name: last_id
-- The highest id is one look into a tree: a counter that was set back never gives an id twice.
SELECT max(coalesce((SELECT value FROM counters WHERE name = 'last_id'), 0), coalesce((SELECT max(id) FROM jobs), 0));

-- name: set_last_id
INSERT INTO counters VALUES ('last_id', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: queue_of_name
SELECT no, CAST(name AS BLOB), CAST(lanes AS BLOB), CAST(shared AS BLOB), unbalanced
FROM queues WHERE name = ?1;

-- name: queue_of_number
SELECT no, CAST(name AS BLOB), CAST(lanes AS BLOB), CAST(shared AS BLOB), unbalanced
FROM queues WHERE no = ?1;

-- name: queues_sharing
-- By name.
SELECT no FROM queues WHERE shared = CAST(?1 AS TEXT) ORDER BY name;

-- name: new_queue
INSERT INTO queues (name) VALUES (?1) RETURNING no;

-- name: count
-- A counter that is too low, since jobs were deleted by hand, stops at 0: it must not stop the queue.
UPDATE queues
SET ready = max(0, ready + ?2), delayed = max(0, delayed + ?3), taken = max(0, taken + ?4), dead = max(0, dead + ?5),
    done = done + ?6, retried = retried + ?7, buried = buried + ?8, expired = expired + ?9,
    cancelled = cancelled + ?10, promoted = promoted + ?11, held = max(0, held + ?12)
WHERE no = ?1;

-- name: queue_now
-- Is the queue paused, until when, is a job ready, and the soonest start time and lease end.
SELECT paused AND (paused_until IS NULL OR paused_until > ?2), paused_until,
       EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND state = 0),
       (SELECT sort FROM jobs WHERE queue = ?1 AND state = 1 ORDER BY sort LIMIT 1),
       (SELECT sort FROM jobs WHERE queue = ?1 AND state = 2 ORDER BY sort LIMIT 1)
FROM queues WHERE no = ?1;

-- name: due
-- Jobs of a state whose moment has come, the oldest first.
SELECT id, waiters, CAST(lane AS BLOB) FROM jobs
WHERE queue = ?1 AND state = ?2 AND sort <= ?3 ORDER BY sort LIMIT ?4;

-- name: own_due
SELECT queue, state, waiters, CAST(lane AS BLOB) FROM jobs WHERE id = ?1 AND state IN (1, 2, 4, 5) AND sort <= ?2;

-- name: start_delayed
-- Jobs of lanes are held if the queue has rules (?2 is 1).
UPDATE OR ROLLBACK jobs SET state = iif(?2 AND lane IS NOT NULL, -1, 0), sort = rank WHERE id IN carray(?1);

-- name: end_leases
UPDATE OR ROLLBACK jobs
SET state = iif(?2 AND lane IS NOT NULL, -1, 0), sort = rank, attempts = attempts + 1, prev_start_time = start_time,
    start_time = ?3, crashes = crashes + 1
WHERE id IN carray(?1);

-- name: insert_job
INSERT INTO jobs (
    id, queue, state, sort, rank, cost, key, waiters, created_at, start_time, keep_for, data, reports_to, lane
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14);

-- name: key_holder
SELECT id, state, waiters, sort, CAST(lane AS BLOB) FROM jobs WHERE queue = ?1 AND key = ?2 AND state < 3;

-- name: add_waiter
INSERT INTO waiters (job, n, data) SELECT ?1, coalesce(max(n), 0) + 1, ?2 FROM waiters WHERE job = ?1;

-- name: set_waiters
UPDATE jobs SET waiters = ?2 WHERE id = ?1;

-- name: replace_job
-- ?8 is 1 if it was running: the old run's token must not fit any more. It still reports to the same flow.
UPDATE jobs
SET state = ?2, sort = ?3, rank = ?4, cost = ?5, keep_for = ?6, data = ?7, attempts = attempts + ?8,
    prev_start_time = iif(?8, start_time, prev_start_time), start_time = ?9, tries = 0, crashes = 0
WHERE id = ?1;

-- name: ready_jobs
SELECT id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, tries, crashes, lane
FROM jobs WHERE queue = ?1 AND state = 0 ORDER BY sort, id LIMIT ?2;

-- name: ready_texts
SELECT id, CAST(key AS BLOB), CAST(lane AS BLOB), attempts, CAST(reports_to || char(10) || key AS BLOB)
FROM jobs WHERE queue = ?1 AND state = 0 ORDER BY sort, id LIMIT ?2;

-- name: bury_unreadable
UPDATE jobs SET state = 3, sort = ?2, ended_at = ?2, reason = ?3, key = ?4, lane = ?5 WHERE id = ?1;

-- name: lease_jobs
UPDATE OR ROLLBACK jobs SET state = 2, sort = ?2, worker = ?3, taken_at = ?4 WHERE id IN carray(?1);

-- name: give_back_unseen
-- Jobs of a take whose caller went away before it got the answer: no caller knows the token, so it may stay.
UPDATE jobs SET state = ?5, sort = rank
WHERE id = ?1 AND queue = ?2 AND state = 2 AND attempts = ?3 AND taken_at = ?4;

-- name: held_jobs
-- The taken jobs among these ids whose lease has not ended.
SELECT id, queue, attempts, waiters, keep_for, taken_at, CAST(reports_to || char(10) || key AS BLOB), CAST(lane AS BLOB)
FROM jobs NOT INDEXED
WHERE id IN carray(?1) AND state = 2 AND sort > ?2;

-- name: cancelled_jobs
-- The cancelled jobs among these ids that are still kept. Each has the token of its last lease.
SELECT id, queue, attempts, taken_at FROM jobs NOT INDEXED
WHERE id IN carray(?1) AND state = 5 AND sort > ?2;

-- name: delete_jobs
DELETE FROM jobs WHERE id IN carray(?1);

-- name: delete_waiters
DELETE FROM waiters WHERE job IN carray(?1);

-- name: keep_done
UPDATE jobs SET state = 4, sort = ?2, result = ?3, ended_at = ?4 WHERE id = ?1;

-- name: cancel_job
UPDATE jobs SET state = 5, sort = ?2, keep_for = ?3, ended_at = ?4 WHERE id = ?1;

-- name: retry_job
-- ?5 is 1 if the retry counts as a try; ?6 is a new rank, or NULL.
UPDATE jobs
SET state = ?2, sort = iif(?2 = 1, ?3, coalesce(?6, rank)), attempts = attempts + 1, prev_start_time = start_time,
    start_time = ?3, reason = ?4, tries = tries + ?5, rank = coalesce(?6, rank)
WHERE id = ?1;

-- name: bury_job
UPDATE jobs SET state = 3, sort = ?2, ended_at = ?2, reason = ?3 WHERE id = ?1;

-- name: extend_lease
UPDATE jobs SET sort = ?5
WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND taken_at = ?6 AND state = 2 AND sort > ?4;

-- name: all_queues
SELECT no FROM queues;

-- name: stats
-- The oldest ready job is the one with the lowest id, since ids grow. (`state <> 2` lets jobs_by_id apply.)
SELECT CAST(name AS BLOB), ready, taken, delayed, dead, done, retried, buried, expired, cancelled, promoted,
       held, paused AND (paused_until IS NULL OR paused_until > ?1), paused_until,
       (SELECT created_at FROM jobs WHERE queue = queues.no AND state = 0 AND state <> 2 ORDER BY id LIMIT 1)
FROM queues ORDER BY no;

-- name: describe_jobs
-- All of each record. Texts as bytes: in a damaged file they may be no text.
SELECT id, CAST(name AS BLOB), state, data, rank, cost, CAST(key AS BLOB),
       attempts, created_at, start_time, prev_start_time, waiters, keep_for, CAST(worker AS BLOB), taken_at, sort,
       ended_at, CAST(reason AS BLOB), result, tries, crashes, CAST(lane AS BLOB)
FROM jobs JOIN queues ON no = queue WHERE id IN carray(?1);

-- name: state_of
-- And whether another job holds its key.
SELECT queue, CAST(name AS BLOB), state, waiters, keep_for, attempts, CAST(reports_to || char(10) || key AS BLOB),
       CAST(lane AS BLOB),
       key IS NOT NULL AND EXISTS (
           SELECT 1 FROM jobs AS other WHERE other.queue = jobs.queue AND other.key = jobs.key AND other.state < 3
       )
FROM jobs JOIN queues ON no = queue WHERE id = ?1;

-- name: waiters_after
-- They are numbered from 1 without a gap, so those after the first ?2 are a range of the primary key.
SELECT data FROM waiters WHERE job = ?1 AND n > ?2 ORDER BY n;

-- name: line_before
-- The first ready jobs that go before the place ?2, id ?3. In two ranges: SQLite does not enter the index by the id behind
-- `sort`, and a million jobs of the same place would all be looked at.
SELECT id FROM (
    SELECT id FROM jobs WHERE queue = ?1 AND state = 0 AND sort < ?2 ORDER BY sort, id LIMIT ?4
) UNION ALL SELECT id FROM (
    SELECT id FROM jobs WHERE queue = ?1 AND state = 0 AND sort = ?2 AND id < ?3 ORDER BY id LIMIT ?4
) LIMIT ?4;

-- name: browse_line
-- After the place (?3, ?4), in two ranges as above.
SELECT id FROM (
    SELECT id FROM jobs WHERE queue = ?1 AND state = ?2 AND sort = ?3 AND id > ?4 ORDER BY id LIMIT ?5
) UNION ALL SELECT id FROM (
    SELECT id FROM jobs WHERE queue = ?1 AND state = ?2 AND sort > ?3 ORDER BY sort, id LIMIT ?5
) LIMIT ?5;

-- name: browse_ended
-- The same for jobs that have ended, backwards.
SELECT id FROM (
    SELECT id FROM jobs INDEXED BY jobs_ended
    WHERE queue = ?1 AND state = ?2 AND state >= 3 AND ended_at = ?3 AND id < ?4 ORDER BY id DESC LIMIT ?5
) UNION ALL SELECT id FROM (
    SELECT id FROM jobs INDEXED BY jobs_ended
    WHERE queue = ?1 AND state = ?2 AND state >= 3 AND ended_at < ?3 ORDER BY ended_at DESC, id DESC LIMIT ?5
) LIMIT ?5;

-- name: by_id
SELECT id, waiters, attempts, CAST(reports_to || char(10) || key AS BLOB), CAST(lane AS BLOB), created_at
FROM jobs INDEXED BY jobs_by_id
WHERE queue = ?1 AND state = ?2 AND state <> 2 AND id > ?3 ORDER BY id LIMIT ?4;

-- name: taken_by_id
SELECT id, waiters, attempts, CAST(reports_to || char(10) || key AS BLOB), CAST(lane AS BLOB), created_at
FROM jobs WHERE queue = ?1 AND state = 2 AND id > ?3 ORDER BY id LIMIT ?4;

-- name: ended_before
SELECT id, waiters, attempts, CAST(reports_to || char(10) || key AS BLOB), NULL FROM jobs INDEXED BY jobs_ended
WHERE queue = ?1 AND state = ?2 AND state >= 3 AND ended_at < ?3 ORDER BY ended_at, id LIMIT ?4;

-- name: revive_job
UPDATE jobs
SET state = ?3, sort = rank, attempts = attempts + 1, prev_start_time = start_time, start_time = ?2, ended_at = NULL,
    tries = 0, crashes = 0
WHERE id = ?1;

-- name: start_now
-- It does not come back from a run, so its attempts stay.
UPDATE jobs SET state = ?3, sort = rank, start_time = ?2 WHERE id = ?1;

-- name: rerank_job
-- ?3 is the state, which may change from ready to held.
UPDATE jobs SET rank = ?2, state = ?3, sort = iif(?3 < 1, ?2, sort) WHERE id = ?1;

-- name: not_crashed
UPDATE jobs SET crashes = crashes - 1 WHERE id = ?1 AND crashes > 0;

-- name: set_pause
UPDATE queues SET paused = ?2, paused_until = ?3 WHERE no = ?1;

-- name: set_lanes
UPDATE queues SET lanes = ?2, shared = ?3 WHERE no = ?1;

-- name: count_taken
SELECT count(*) FROM jobs WHERE queue = ?1 AND state = 2;

-- name: set_unbalanced
UPDATE queues SET unbalanced = ?2 WHERE no = ?1;

-- name: next_lanes
-- Those of the next ?3 jobs, by name, beginning with the lane ?2.
SELECT CAST(lane AS BLOB) FROM jobs INDEXED BY jobs_lanes
WHERE queue = ?1 AND lane >= CAST(?2 AS TEXT) AND state <= 2 AND state <> 1 ORDER BY lane LIMIT ?3;

-- name: lane_counts
SELECT CAST(lane AS BLOB), sum(state = 0), sum(state = -1), sum(state = 2) FROM jobs INDEXED BY jobs_lanes
WHERE queue = ?1 AND lane IS NOT NULL AND state <= 2 AND state <> 1 GROUP BY lane;

-- name: lanes_now
-- Of each lane in ?1: how many jobs are ready or taken, the highest turn, the best held job, and whether that goes
-- before a ready one. Without a limit (?3 is 0) nothing is counted: any number may be in the line.
SELECT value,
       iif(?3, (SELECT count(*) FROM jobs INDEXED BY jobs_lanes
                WHERE queue = ?2 AND lane = CAST(value AS TEXT) AND state >= 0 AND state <= 2 AND state <> 1), 0),
       (SELECT sort FROM jobs INDEXED BY jobs_lanes
        WHERE queue = ?2 AND lane = CAST(value AS TEXT) AND state = 0 AND state <= 2 AND state <> 1
        ORDER BY sort DESC LIMIT 1),
       best.id, best.rank, best.cost,
       iif(?3 AND best.id IS NOT NULL,
           EXISTS (SELECT 1 FROM jobs AS line INDEXED BY jobs_lanes
                   WHERE queue = ?2 AND lane = CAST(value AS TEXT) AND state = 0 AND state <= 2 AND state <> 1
                   AND (line.rank, line.id) > (best.rank, best.id)), 0)
FROM carray(?1) LEFT JOIN jobs AS best ON best.id = (
    SELECT id FROM jobs INDEXED BY jobs_lanes
    WHERE queue = ?2 AND lane = CAST(value AS TEXT) AND state = -1 AND state <= 2 AND state <> 1
    ORDER BY sort, rank, id LIMIT 1
);

-- name: in_line_or_running
-- How many jobs of a lane.
SELECT count(*) FROM jobs INDEXED BY jobs_lanes
WHERE queue = ?1 AND lane = CAST(?2 AS TEXT) AND state >= 0 AND state <= 2 AND state <> 1;

-- name: best_held
SELECT rank, id, cost FROM jobs INDEXED BY jobs_lanes
WHERE queue = ?1 AND lane = CAST(?2 AS TEXT) AND state = -1 AND state <= 2 AND state <> 1
ORDER BY sort, rank, id LIMIT ?3;

-- name: worst_ready
-- Sorts the ready jobs of a lane, which are at most as many as its limit.
SELECT rank, id FROM jobs INDEXED BY jobs_lanes
WHERE queue = ?1 AND lane = CAST(?2 AS TEXT) AND state = 0 AND state <= 2 AND state <> 1
ORDER BY rank DESC, id DESC LIMIT ?3;

-- name: last_turn
-- Of the ready jobs of a lane in the level from ?3 to ?4.
SELECT sort FROM jobs INDEXED BY jobs_lanes
WHERE queue = ?1 AND lane = CAST(?2 AS TEXT) AND state = 0 AND state <= 2 AND state <> 1 AND sort >= ?3 AND sort < ?4
ORDER BY sort DESC LIMIT 1;

-- name: first_turn
-- Of the ready jobs of all lanes in the level from ?2 to ?3.
SELECT sort FROM jobs INDEXED BY jobs_turns
WHERE queue = ?1 AND lane IS NOT NULL AND state = 0 AND sort >= ?2 AND sort < ?3 ORDER BY sort LIMIT 1;

-- name: let_in
UPDATE OR ROLLBACK jobs SET state = 0, sort = ?2 WHERE id = ?1;

-- name: hold_back
UPDATE OR ROLLBACK jobs SET state = -1, sort = rank WHERE id IN carray(?1);

-- name: read_document
SELECT value, version, expires_at FROM documents WHERE name = ?1;

-- name: write_document
INSERT INTO documents (name, value, version, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, version = excluded.version, expires_at = excluded.expires_at;

-- name: list_documents
-- Names from the prefix ?1 up to ?2, which is the prefix and then a character that no name has.
SELECT CAST(name AS BLOB), value, version, expires_at FROM documents
WHERE name >= ?1 AND name < ?2 AND (expires_at IS NULL OR expires_at > ?3)
ORDER BY name;

-- name: forget_documents
-- A bounded part of those that expired long ago.
DELETE FROM documents WHERE name IN (
    SELECT name FROM documents WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2
);

-- name: host_clock
SELECT CAST(boot AS BLOB), offset FROM host_clock;

-- name: set_host_clock
INSERT INTO host_clock (one, boot, offset) VALUES (1, ?1, ?2)
ON CONFLICT (one) DO UPDATE SET boot = excluded.boot, offset = excluded.offset;

-- name: note_step
UPDATE host_clock SET offset = ?1, stepped_at = ?2, stepped_by = ?3;

-- name: queue_names
SELECT no, CAST(name AS BLOB) FROM queues;

-- name: move_leases
UPDATE OR ROLLBACK jobs SET sort = max(0, sort + ?2) WHERE queue = ?1 AND state = 2;

-- name: move_delayed
UPDATE OR ROLLBACK jobs SET sort = max(0, sort + ?2), start_time = max(0, start_time + ?2)
WHERE queue = ?1 AND state = 1;

-- name: move_pauses
UPDATE queues SET paused_until = max(0, paused_until + ?1) WHERE paused_until IS NOT NULL;

-- name: move_documents
UPDATE OR ROLLBACK documents SET expires_at = max(0, expires_at + ?1) WHERE expires_at > 0;
