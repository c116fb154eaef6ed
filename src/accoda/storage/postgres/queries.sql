-- What the client sends: one call of a function of the schema for each verb, so one round trip and one transaction.
-- The functions, with their arguments and answers, are in migrations/. `accoda.` stands for the store's schema. The first
-- argument `at` is the present moment for tests, else NULL.

-- name: enqueue
SELECT ids, whats, crowds
FROM accoda.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, false, $12);

-- name: enqueue_one
SELECT accoda.enqueue_one($1, $2, $3, $4, $5, $6, NULL);

-- name: enqueue_told
-- Two transactions: it is seen after the first, and lasts after the second.
CALL accoda.enqueue_told($1, $2, $3, $4, $5, $6, $7, NULL);

-- name: enqueue_apart
-- In a caller's own transaction, by whatever driver: so each argument says its type.
SELECT ids, whats, crowds
FROM accoda.enqueue(
    CAST($1 AS bigint), CAST($2 AS text[]), CAST($3 AS bytea[]), CAST($4 AS double precision[]), CAST($5 AS bigint[]),
    CAST($6 AS bigint[]), CAST($7 AS bigint[]), CAST($8 AS double precision[]), CAST($9 AS text[]),
    CAST($10 AS smallint[]), CAST($11 AS bytea[]), true, CAST($12 AS text[])
);

-- name: take
SELECT id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, fresh_at, crashes
FROM accoda.take($1, $2, $3, $4, $5, $6);

-- name: give_back
SELECT accoda.give_back($1, $2, $3);

-- name: finish
SELECT accoda.finish($1, $2, $3, $4, $5);

-- name: finish_plain
SELECT accoda.finish_plain($1, $2, $3, $4);

-- name: settle
SELECT accoda.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21);

-- name: extend
SELECT accoda.extend($1, $2, $3, $4, $5);

-- name: rerank
SELECT accoda.rerank($1, $2, $3, $4, $5);

-- name: waiters
SELECT accoda.waiters_of($1, $2, $3, $4);

-- name: peek
-- The fields of the job by name, as in find.
SELECT moment, guests, (job).id, (job).queue, (job).state, (job).data, (job).rank, (job).cost, (job).key,
       (job).attempts, (job).created_at, (job).start_time, (job).prev_start_time, (job).waiters, (job).keep_for,
       (job).worker, (job).taken_at, (job).lease_until, (job).ended_at, (job).reason, (job).result, (job).fresh_at,
       (job).crashes
FROM accoda.peek($1, $2, $3, $4);

-- name: drop
SELECT accoda.drop_job($1, $2, $3, $4);

-- name: look
SELECT takable, closed, due_in, starts FROM accoda.glance($1, $2, $3);

-- name: ring
SELECT accoda.ring($1);

-- name: stats
SELECT * FROM accoda.stats($1);

-- name: read
SELECT value, version, expires_at FROM accoda.read($1, $2);

-- name: write
SELECT version, found_version FROM accoda.write($1, $2, $3, $4, $5);

-- name: documents
SELECT name, value, version, expires_at FROM accoda.documents($1, $2, $3);

-- name: find
-- Fields by name, here and in browse: a later version may add some while this one still runs.
SELECT id, queue, state, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, keep_for,
       worker, taken_at, lease_until, ended_at, reason, result, fresh_at, crashes
FROM accoda.find($1, $2);

-- name: browse
SELECT id, queue, state, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, keep_for,
       worker, taken_at, lease_until, ended_at, reason, result, fresh_at, crashes
FROM accoda.browse($1, $2, $3, $4, $5);

-- name: place
SELECT moment, ahead, newer, behind, ready, ranks, last_rank, (job).id, (job).queue, (job).state, (job).data, (job).rank,
       (job).cost, (job).key, (job).attempts, (job).created_at, (job).start_time, (job).prev_start_time, (job).waiters,
       (job).keep_for, (job).worker, (job).taken_at, (job).lease_until, (job).ended_at, (job).reason, (job).result,
       (job).fresh_at, (job).crashes
FROM accoda.place($1, $2, $3);

-- name: stretches
SELECT sorts, members, far, beyond FROM accoda.stretches($1, $2, $3, $4, $5);

-- name: remove
SELECT accoda.remove($1, $2);

-- name: revive
SELECT accoda.revive($1, $2);

-- name: start_now
SELECT accoda.start_now($1, $2);

-- name: pause
SELECT accoda.pause($1, $2);

-- name: resume
SELECT accoda.resume($1);

-- name: purge
SELECT accoda.purge($1, $2, $3, $4, $5);

-- name: dead_rows
-- By the server's statistics, which are a second old at most.
SELECT pg_stat_get_dead_tuples('accoda.jobs'::regclass);

-- name: vacuum
-- SKIP_LOCKED: not if somebody else is at it. Index clean-up is the point: takers walk over dead entries until then.
VACUUM (SKIP_LOCKED, INDEX_CLEANUP on, TRUNCATE off, PARALLEL 0) accoda.jobs;
