-- Every `id IN carray(?1)` is also there as a range, with one more value: see `Transaction.run_on`.
-- `UPDATE OR ROLLBACK` where many jobs are changed: against a failure half-way SQLite would otherwise copy every page, as
-- it was, into a file beside. Here each failure ends the whole transaction anyway.
-- States are written as numbers so that the partial indexes apply: 0 ready, 1 delayed, 2 taken, 3 dead, 4 done.

-- name: sound
-- Part of other statements, there called {sound}: whether a record can be read. 2**54 is beyond every moment and number
-- that is ever written (now + 2**53): bits above it, and a sign, show when all bits are laid over each other. What is no
-- text can only be seen when it is read.
((id | attempts | waiters | cost | created_at | start_time | coalesce(prev_start_time, 0) | fresh_at | crashes)
 BETWEEN 0 AND 18014398509481983 AND rank BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308)

-- name: last_id
-- The highest id is one look into a tree: a counter that was set back never gives an id twice.
SELECT max(coalesce((SELECT value FROM counters WHERE name = 'last_id' AND value BETWEEN 0 AND 4611686018427387904), 0),
           coalesce((SELECT max(id) FROM jobs WHERE id BETWEEN 0 AND 4611686018427387904), 0));

-- name: set_last_id
INSERT INTO counters VALUES ('last_id', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

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

-- name: due
-- Some whose moment has come, the oldest first. A delayed job whose start time is another must not start early.
SELECT id, {sound} AND (state <> 1 OR sort = start_time) FROM jobs
WHERE queue = ?1 AND state = ?2 AND sort <= ?3 ORDER BY sort LIMIT ?4;

-- name: start_delayed
UPDATE OR ROLLBACK jobs SET state = 0, sort = rank WHERE id IN carray(?1);

-- name: end_leases
UPDATE OR ROLLBACK jobs
SET state = 0, sort = rank, attempts = attempts + 1, prev_start_time = start_time, start_time = ?2,
    crashes = crashes + 1
WHERE id IN carray(?1);

-- name: kept_until_now
SELECT id, waiters FROM jobs WHERE queue = ?1 AND state = 4 AND sort <= ?2 ORDER BY sort LIMIT ?3;

-- name: insert_job
INSERT INTO jobs (id, queue, state, sort, rank, cost, key, waiters, created_at, start_time, keep_for, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12);

-- name: key_holder
SELECT id, state, waiters, {sound} AND state >= 0 FROM jobs WHERE queue = ?1 AND key = ?2 AND state < 3;

-- name: add_waiter
INSERT INTO waiters (job, n, data) SELECT ?1, coalesce(max(n), 0) + 1, ?2 FROM waiters WHERE job = ?1;

-- name: set_waiters
UPDATE jobs SET waiters = ?2 WHERE id = ?1;

-- name: replace_job
-- ?8 is 1 if it was running: the old run's token must not fit any more.
UPDATE jobs
SET state = ?2, sort = ?3, rank = ?4, cost = ?5, keep_for = ?6, data = ?7, attempts = attempts + ?8,
    prev_start_time = iif(?8, start_time, prev_start_time), start_time = ?9, fresh_at = attempts + ?8, crashes = 0
WHERE id = ?1;

-- name: ready_jobs
SELECT id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, fresh_at, crashes, {sound}
FROM jobs WHERE queue = ?1 AND state = 0 ORDER BY sort, id LIMIT ?2;

-- name: ready_ids
SELECT id FROM jobs WHERE queue = ?1 AND state = 0 ORDER BY sort, id LIMIT ?2;

-- name: lease_jobs
UPDATE OR ROLLBACK jobs SET state = 2, sort = ?2, worker = ?3, taken_at = ?4 WHERE id IN carray(?1);

-- name: give_back_unseen
-- Jobs of a take whose caller went away before it got the answer: nobody knows the token, so it may stay.
UPDATE jobs SET state = 0, sort = rank WHERE id = ?1 AND queue = ?2 AND state = 2 AND attempts = ?3;

-- name: count_plain
-- How many of these ids are held by a lease of this queue with these attempts, and leave nothing behind when done.
SELECT count(*) FROM jobs NOT INDEXED
WHERE id IN carray(?1) AND queue = ?2 AND attempts = ?3 AND state = 2 AND sort > ?4 AND waiters = 0 AND keep_for = 0;

-- name: held_jobs
-- The taken jobs among these ids whose lease has not ended.
SELECT id, queue, attempts, waiters, keep_for FROM jobs NOT INDEXED
WHERE id IN carray(?1) AND state = 2 AND sort > ?2;

-- name: delete_jobs
DELETE FROM jobs WHERE id IN carray(?1);

-- name: delete_waiters_of_jobs
DELETE FROM waiters WHERE job IN carray(?1);

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

-- name: waiters_after
-- They are numbered from 1 without a gap, so those after the first ?2 are a range of the primary key.
SELECT data FROM waiters WHERE job = ?1 AND n > ?2 ORDER BY n;

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
SELECT no, CAST(name AS BLOB), ready, taken, delayed, dead, done, retried, buried, expired,
       paused AND (paused_until IS NULL OR paused_until > ?1), paused_until,
       (SELECT created_at FROM jobs WHERE queue = queues.no AND state = 0 AND state <> 2 ORDER BY id LIMIT 1)
FROM queues ORDER BY no;

-- name: recount
-- For counters that cannot be right.
UPDATE queues
SET ready = (SELECT count(*) FROM jobs WHERE queue = ?1 AND state = 0),
    delayed = (SELECT count(*) FROM jobs WHERE queue = ?1 AND state = 1),
    taken = (SELECT count(*) FROM jobs WHERE queue = ?1 AND state = 2),
    dead = (SELECT count(*) FROM jobs WHERE queue = ?1 AND state = 3),
    done = iif(done BETWEEN 0 AND 4611686018427387904, done, 0),
    retried = iif(retried BETWEEN 0 AND 4611686018427387904, retried, 0),
    buried = iif(buried BETWEEN 0 AND 4611686018427387904, buried, 0),
    expired = iif(expired BETWEEN 0 AND 4611686018427387904, expired, 0)
WHERE no = ?1;

-- name: out_of_line
-- Records of a queue that no other statement would ever come to: in no state, or waiting for a moment that never comes.
SELECT id FROM (SELECT id FROM jobs WHERE queue = ?1 AND state > 4 LIMIT ?2)
UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE queue = ?1 AND state < 0 LIMIT ?2)
UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE queue = ?1 AND state = 1 AND sort > 18014398509481984 LIMIT ?2)
UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE queue = ?1 AND state = 2 AND sort > 18014398509481984 LIMIT ?2)
UNION ALL SELECT id FROM (SELECT id FROM jobs WHERE queue = ?1 AND state = 4 AND sort > 18014398509481984 LIMIT ?2)
LIMIT ?2;

-- name: next_queue_of_jobs
SELECT min(queue) FROM jobs WHERE queue > ?1;

-- name: adopt_queue
INSERT INTO queues (no, name) VALUES (?1, ?2) ON CONFLICT (no) DO UPDATE SET name = excluded.name;

-- name: not_dead
SELECT id FROM jobs WHERE queue = ?1 AND state < 3 UNION ALL SELECT id FROM jobs WHERE queue = ?1 AND state > 3 LIMIT ?2;

-- name: raw_job
-- All of a record as it is: texts as their bytes.
SELECT id, queue, state, sort, attempts, waiters, rank, cost, CAST(key AS BLOB), created_at, start_time, prev_start_time,
       keep_for, CAST(worker AS BLOB), taken_at, ended_at, CAST(reason AS BLOB), fresh_at, crashes,
       (SELECT count(*) FROM waiters WHERE job = ?1)
FROM jobs WHERE id = ?1;

-- name: set_aside
UPDATE jobs
SET id = ?2, state = 3, sort = ?3, ended_at = ?3, reason = ?4, attempts = ?5, waiters = ?6, rank = ?7, cost = ?8, key = ?9,
    created_at = ?10, start_time = ?11, prev_start_time = ?12, keep_for = ?13, worker = ?14, taken_at = ?15,
    fresh_at = ?16, crashes = ?17
WHERE id = ?1;

-- name: move_waiters
UPDATE waiters SET job = ?2 WHERE job = ?1;

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

-- name: own_due
SELECT queue, state, waiters, {sound} AND (state <> 1 OR sort = start_time) FROM jobs
WHERE id = ?1 AND state IN (1, 2, 4) AND sort <= ?2;

-- name: find_job
SELECT id, queue, state, data, rank, cost, key, attempts, created_at, start_time,
       prev_start_time, waiters, keep_for, worker, taken_at, sort, ended_at, reason, result,
       fresh_at, crashes, {sound} AND state BETWEEN 0 AND 4 AND keep_for BETWEEN 0 AND 18014398509481
FROM jobs WHERE id = ?1;

-- name: browse_ids
SELECT id FROM jobs INDEXED BY jobs_by_id WHERE queue = ?1 AND state = ?2 AND state <> 2 AND id > ?3
ORDER BY id LIMIT ?4;

-- name: browse_taken
SELECT id FROM jobs WHERE queue = ?1 AND state = 2 AND id > ?3 ORDER BY id LIMIT ?4;

-- name: state_of
-- And whether another job holds its key.
SELECT queue, state, waiters, {sound}, key IS NOT NULL AND EXISTS (
    SELECT 1 FROM jobs AS other WHERE other.queue = jobs.queue AND other.key = jobs.key AND other.state < 3
) FROM jobs WHERE id = ?1;

-- name: delete_job
DELETE FROM jobs WHERE id = ?1;

-- name: delete_waiters_of
DELETE FROM waiters WHERE job = ?1;

-- name: revive_job
UPDATE jobs
SET state = 0, sort = rank, attempts = attempts + 1, prev_start_time = start_time, start_time = ?2, ended_at = NULL,
    fresh_at = attempts + 1, crashes = 0
WHERE id = ?1;

-- name: start_now
-- Its attempts stay: it comes back from nowhere.
UPDATE jobs SET state = 0, sort = rank, start_time = ?2 WHERE id = ?1;

-- name: set_pause
UPDATE queues SET paused = ?2, paused_until = ?3 WHERE no = ?1;

-- name: dead_before
SELECT id, waiters FROM jobs WHERE queue = ?1 AND state = 3 AND sort <= ?2 ORDER BY sort, id LIMIT ?3;

-- name: done_before
SELECT id, waiters FROM jobs INDEXED BY jobs_ended WHERE queue = ?1 AND state = 4 AND ended_at <= ?2
ORDER BY ended_at, id LIMIT ?3;

-- name: waiting_before
-- Ids grow with time: the first by id are the oldest, so no others need be looked at.
SELECT id, waiters FROM (
    SELECT id, waiters, created_at FROM jobs INDEXED BY jobs_by_id
    WHERE queue = ?1 AND state = ?4 AND state <> 2 ORDER BY id LIMIT ?3
) WHERE created_at <= ?2;

-- name: taken_before
SELECT id, waiters FROM jobs WHERE queue = ?1 AND state = 2 AND created_at <= ?2 ORDER BY id LIMIT ?3;

-- name: purge_waiters
DELETE FROM waiters WHERE job IN (SELECT id FROM jobs WHERE queue = ?1 AND state = ?2 AND waiters > 0);

-- name: purge
DELETE FROM jobs WHERE queue = ?1 AND state = ?2;

-- name: queue_name
SELECT CAST(name AS BLOB) FROM queues WHERE no = ?1;

-- name: line_before
-- The ready jobs before a place (rank ?2, id ?3), backwards. Two ranges, as the index is not entered by two columns at once.
SELECT sort, id FROM (
    SELECT sort, id FROM jobs INDEXED BY jobs_line
    WHERE queue = ?1 AND state = 0 AND sort = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4
) UNION ALL SELECT sort, id FROM (
    SELECT sort, id FROM jobs INDEXED BY jobs_line
    WHERE queue = ?1 AND state = 0 AND sort < ?2 ORDER BY sort DESC, id DESC LIMIT ?4
) LIMIT ?4;

-- name: line_from
-- The ready jobs from a place on.
SELECT sort, id FROM (
    SELECT sort, id FROM jobs INDEXED BY jobs_line
    WHERE queue = ?1 AND state = 0 AND sort = ?2 AND id >= ?3 ORDER BY id LIMIT ?4
) UNION ALL SELECT sort, id FROM (
    SELECT sort, id FROM jobs INDEXED BY jobs_line
    WHERE queue = ?1 AND state = 0 AND sort > ?2 ORDER BY sort, id LIMIT ?4
) LIMIT ?4;

-- name: lane_up
-- The last id of a rank, and the next rank.
SELECT (SELECT max(id) FROM jobs INDEXED BY jobs_line WHERE queue = ?1 AND state = 0 AND sort = ?2),
       (SELECT min(sort) FROM jobs INDEXED BY jobs_line WHERE queue = ?1 AND state = 0 AND sort > ?2);

-- name: lane_down
SELECT (SELECT min(id) FROM jobs INDEXED BY jobs_line WHERE queue = ?1 AND state = 0 AND sort = ?2),
       (SELECT max(sort) FROM jobs INDEXED BY jobs_line WHERE queue = ?1 AND state = 0 AND sort < ?2);

-- name: lowest_ranks
-- Each is found behind the one before: as many looks as there are ranks, however many jobs have them.
WITH RECURSIVE lanes (sort) AS (
    SELECT min(sort) FROM jobs INDEXED BY jobs_line WHERE queue = ?1 AND state = 0
    UNION ALL
    SELECT (SELECT min(sort) FROM jobs INDEXED BY jobs_line WHERE queue = ?1 AND state = 0 AND sort > lanes.sort)
    FROM lanes WHERE sort IS NOT NULL LIMIT ?2
) SELECT sort FROM lanes WHERE sort IS NOT NULL;

-- name: line_end
-- How many are ready, and the highest rank.
SELECT ready, (SELECT max(sort) FROM jobs INDEXED BY jobs_line WHERE queue = ?1 AND state = 0) FROM queues WHERE no = ?1;
