-- States are written as numbers so that the partial indexes apply: 0 ready, 1 delayed, 2 taken, 3 dead, 4 done.

-- name: last_id
SELECT value FROM counters WHERE name = 'last_id';

-- name: set_last_id
UPDATE counters SET value = ?1 WHERE name = 'last_id';

-- name: queue_number
SELECT no FROM queues WHERE name = ?1;

-- name: new_queue
INSERT INTO queues (name) VALUES (?1) RETURNING no;

-- name: count
UPDATE queues
SET ready = ready + ?2, delayed = delayed + ?3, taken = taken + ?4, dead = dead + ?5,
    done = done + ?6, retried = retried + ?7, buried = buried + ?8, expired = expired + ?9
WHERE no = ?1;

-- name: next_moments
-- The soonest start time and lease end of a queue, and whether it is paused.
SELECT (SELECT sort FROM jobs WHERE queue = ?1 AND state = 1 ORDER BY sort LIMIT 1),
       (SELECT sort FROM jobs WHERE queue = ?1 AND state = 2 ORDER BY sort LIMIT 1),
       paused AND (paused_until IS NULL OR paused_until > ?2)
FROM queues WHERE no = ?1;

-- name: start_delayed
UPDATE jobs SET state = 0, sort = rank WHERE queue = ?1 AND state = 1 AND sort <= ?2;

-- name: end_leases
UPDATE jobs
SET state = 0, sort = rank, attempts = attempts + 1, prev_start_time = start_time, start_time = ?2,
    crashes = crashes + 1
WHERE queue = ?1 AND state = 2 AND sort <= ?2;

-- name: forget_kept_waiters
DELETE FROM waiters
WHERE job IN (SELECT id FROM jobs WHERE queue = ?1 AND state = 4 AND sort <= ?2 AND waiters > 0);

-- name: forget_kept
DELETE FROM jobs WHERE queue = ?1 AND state = 4 AND sort <= ?2;

-- name: insert_job
INSERT INTO jobs (id, queue, state, sort, rank, cost, key, waiters, created_at, start_time, keep_for, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12);

-- name: key_holder
SELECT id, state, waiters FROM jobs WHERE queue = ?1 AND key = ?2 AND state < 3;

-- name: add_waiter
INSERT INTO waiters (job, n, data) VALUES (?1, ?2, ?3);

-- name: set_waiters
UPDATE jobs SET waiters = ?2 WHERE id = ?1;

-- name: replace_job
-- ?8 is 1 if it was running: the old run's token must not fit any more.
UPDATE jobs
SET state = ?2, sort = ?3, rank = ?4, cost = ?5, keep_for = ?6, data = ?7, attempts = attempts + ?8,
    prev_start_time = iif(?8, start_time, prev_start_time), start_time = ?9, fresh_at = attempts + ?8, crashes = 0
WHERE id = ?1;

-- name: ready_jobs
SELECT id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, fresh_at, crashes
FROM jobs WHERE queue = ?1 AND state = 0 ORDER BY sort, id LIMIT ?2;

-- name: lease_jobs
UPDATE jobs SET state = 2, sort = ?2, worker = ?3, taken_at = ?4 WHERE id IN carray(?1);

-- name: give_back_unseen
-- Jobs of a take whose caller went away before it got the answer: nobody knows the token, so it may stay.
UPDATE jobs SET state = 0, sort = rank WHERE id = ?1 AND queue = ?2 AND state = 2 AND attempts = ?3;

-- name: count_plain
-- How many of these ids are held by a lease of this queue with these attempts, and leave nothing behind when done.
SELECT count(*) FROM jobs
WHERE id IN carray(?1) AND queue = ?2 AND attempts = ?3 AND state = 2 AND sort > ?4 AND waiters = 0 AND keep_for = 0;

-- name: held_jobs
-- The taken jobs among these ids whose lease has not ended.
SELECT id, queue, attempts, waiters, keep_for FROM jobs WHERE id IN carray(?1) AND state = 2 AND sort > ?2;

-- name: delete_jobs
DELETE FROM jobs WHERE id IN carray(?1);

-- name: keep_done
UPDATE jobs SET state = 4, sort = ?2, result = ?3, ended_at = ?4 WHERE id = ?1;

-- name: retry_job
UPDATE jobs
SET state = ?2, sort = iif(?2, ?3, rank), attempts = attempts + 1, prev_start_time = start_time, start_time = ?3,
    reason = ?4
WHERE id = ?1;

-- name: bury_job
UPDATE jobs SET state = 3, sort = ?2, ended_at = ?2, reason = ?3 WHERE id = ?1;

-- name: extend_lease
UPDATE jobs SET sort = ?5 WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND state = 2 AND sort > ?4;

-- name: rerank_job
-- ?4 is how many waiters were seen, or NULL.
UPDATE jobs SET rank = ?3, sort = iif(state, sort, ?3)
WHERE id = ?1 AND queue = ?2 AND state < 2 AND (?4 IS NULL OR waiters <= ?4);

-- name: read_waiters
SELECT data FROM waiters
WHERE job = (SELECT id FROM jobs WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND state = 2 AND sort > ?4)
ORDER BY n;

-- name: look
-- What `wait` needs of a queue: its pause, whether a job is ready, the soonest start time and lease end.
SELECT paused AND (paused_until IS NULL OR paused_until > ?2), paused_until,
       EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND state = 0),
       (SELECT sort FROM jobs WHERE queue = ?1 AND state = 1 ORDER BY sort LIMIT 1),
       (SELECT sort FROM jobs WHERE queue = ?1 AND state = 2 ORDER BY sort LIMIT 1)
FROM queues WHERE no = ?1;

-- name: all_queues
SELECT no FROM queues;

-- name: stats
-- The oldest ready job is the one with the lowest id, since ids grow. (`state <> 2` lets jobs_by_id apply.)
SELECT name, ready, taken, delayed, dead, done, retried, buried, expired,
       paused AND (paused_until IS NULL OR paused_until > ?1), paused_until,
       (SELECT created_at FROM jobs WHERE queue = queues.no AND state = 0 AND state <> 2 ORDER BY id LIMIT 1)
FROM queues ORDER BY no;

-- name: read_document
SELECT value, version, expires_at FROM documents WHERE name = ?1;

-- name: write_document
INSERT INTO documents (name, value, version, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, version = excluded.version, expires_at = excluded.expires_at;

-- name: list_documents
-- Names from the prefix ?1 up to ?2, which is the prefix and then a character that no name has.
SELECT name, value, version, expires_at FROM documents
WHERE name >= ?1 AND name < ?2 AND (expires_at IS NULL OR expires_at > ?3)
ORDER BY name;

-- name: forget_documents
DELETE FROM documents WHERE expires_at IS NOT NULL AND expires_at <= ?1;

-- name: queue_of
SELECT queue FROM jobs WHERE id = ?1;

-- name: find_job
SELECT id, (SELECT name FROM queues WHERE no = queue), state, data, rank, cost, key, attempts, created_at, start_time,
       prev_start_time, waiters, keep_for, worker, taken_at, sort, ended_at, reason, result,
       fresh_at, crashes
FROM jobs WHERE id = ?1;

-- name: browse_ids
SELECT id FROM jobs INDEXED BY jobs_by_id WHERE queue = ?1 AND state = ?2 AND state <> 2 AND id > ?3
ORDER BY id LIMIT ?4;

-- name: browse_taken
SELECT id FROM jobs WHERE queue = ?1 AND state = 2 AND id > ?3 ORDER BY id LIMIT ?4;

-- name: state_of
SELECT queue, state, waiters, key FROM jobs WHERE id = ?1;

-- name: delete_job
DELETE FROM jobs WHERE id = ?1;

-- name: delete_waiters_of
DELETE FROM waiters WHERE job = ?1;

-- name: revive_job
UPDATE jobs
SET state = 0, sort = rank, attempts = attempts + 1, prev_start_time = start_time, start_time = ?2, ended_at = NULL,
    fresh_at = attempts + 1, crashes = 0
WHERE id = ?1;

-- name: set_pause
UPDATE queues SET paused = ?2, paused_until = ?3 WHERE no = ?1;

-- name: purge_waiters
DELETE FROM waiters WHERE job IN (SELECT id FROM jobs WHERE queue = ?1 AND state = ?2 AND waiters > 0);

-- name: purge
DELETE FROM jobs WHERE queue = ?1 AND state = ?2;

-- name: queue_name
SELECT name FROM queues WHERE no = ?1;
