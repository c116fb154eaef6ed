-- The tables of a store. Moments are integer milliseconds since the epoch, durations seconds. This file and those in
-- verbs/ run with the store's schema as search_path.
--
-- The domains keep out what no client can read: numbers that are negative, absurd or not finite, states that do not exist,
-- names that are none. Domains and not CHECK constraints of the table: PostgreSQL prepares those anew for each statement,
-- and checks all of them whatever it changes (measured: docs/decisions/0005-postgres.md).

CREATE DOMAIN job_id AS bigint CHECK (VALUE > 0);
CREATE DOMAIN queue_name AS text COLLATE "C" CHECK (VALUE ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$');
CREATE DOMAIN lane_name AS text COLLATE "C" CHECK (length(VALUE) BETWEEN 1 AND 128);
CREATE DOMAIN job_state AS smallint CHECK (VALUE BETWEEN -1 AND 5);
CREATE DOMAIN finite AS double precision CHECK (VALUE > '-Infinity' AND VALUE < 'Infinity');  -- NaN is above all
CREATE DOMAIN moment AS bigint CHECK (VALUE BETWEEN 0 AND 18014398509481984);  -- 2 ** 54: none that is written is above
CREATE DOMAIN duration AS double precision CHECK (VALUE BETWEEN 0 AND 18014398509481);
CREATE DOMAIN counter AS integer CHECK (VALUE BETWEEN 0 AND 2000000000);

CREATE SEQUENCE job_ids AS bigint;  -- no cache: ids grow over all sessions, and equal ranks go by id

-- state: -1 held, 0 ready, 1 delayed, 2 taken, 3 dead, 4 done, 5 cancelled.
-- sort: what orders the jobs of that state. Held: the rank; ready: the rank, or the turn in a fair line; delayed: the start
-- time; taken: the end of the lease; dead: when it was buried; done, cancelled: until when it is kept. So one index serves
-- every state.
-- Fixed columns first, wide ones last, so that nothing is lost to alignment.
CREATE TABLE jobs (
    id              job_id NOT NULL PRIMARY KEY,
    sort            finite NOT NULL,
    rank            finite NOT NULL,
    cost            moment NOT NULL,
    created_at      moment NOT NULL,
    start_time      moment NOT NULL,
    keep_for        duration NOT NULL,
    attempts        counter NOT NULL DEFAULT 0,
    tries           counter NOT NULL DEFAULT 0,
    crashes         counter NOT NULL DEFAULT 0,
    waiters         counter NOT NULL DEFAULT 0,
    state           job_state NOT NULL,
    queue           queue_name NOT NULL,
    data            bytea NOT NULL,
    prev_start_time moment,
    taken_at        moment,
    ended_at        moment,
    key             text COLLATE "C",
    reports_to      text COLLATE "C",  -- the key of the job in accoda.flows that is told of its end
    lane            lane_name,  -- never changes
    worker          text,
    reason          text,
    result          bytea
) WITH (
    -- A job is written twice and deleted once, so its place is free for others very soon: pages are filled, and the
    -- vacuum comes by the number of dead rows, not by a share of a table that may hold millions of waiting jobs.
    -- Measured: docs/decisions/0005-postgres.md.
    fillfactor = 100,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_insert_threshold = 200000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 100000,
    autovacuum_analyze_scale_factor = 0.1,
    vacuum_index_cleanup = on,
    vacuum_truncate = off  -- giving the end of the file back needs a lock that stops every worker
);

CREATE INDEX jobs_line ON jobs (queue, state, sort, id);

-- For walks by id and for the oldest ready job. Not for taken jobs: those are few, and it would cost every take. Only a
-- statement that says `state + 0 <> 2` can use it: else the planner may choose it for a take, and sort all ready jobs.
CREATE INDEX jobs_by_id ON jobs (queue, state, id) WHERE state + 0 <> 2;

-- Kept jobs by their end, likewise. Only they are in it, so no other job pays for it; dead jobs have their end in jobs_line.
CREATE INDEX jobs_ended ON jobs (queue, state, ended_at, id) WHERE state + 0 >= 4;

-- Which job holds a key. Settling, burying or cancelling it takes it out of this index, and so gives the key back.
CREATE UNIQUE INDEX jobs_key ON jobs (key, queue) WHERE key IS NOT NULL AND state < 3;

-- The jobs of a lane that are held, ready or taken, and the ready jobs of all lanes by their turns. Jobs without a lane are
-- in neither. The expressions `queue || ''` and `state + 0` are there so that a statement names the index that it means: for
-- `queue = q AND lane = l AND state = 0` the planner may choose jobs_line and walk over the jobs of all other lanes.
CREATE INDEX jobs_lane ON jobs ((queue || ''), lane, state, sort, id) WHERE lane IS NOT NULL AND state IN (-1, 0, 2);
CREATE INDEX jobs_turns ON jobs ((queue || ''), sort) WHERE lane IS NOT NULL AND state + 0 = 0;

-- Numbered from 1 without a gap, in the order in which they joined.
CREATE TABLE waiters (
    job  bigint NOT NULL,
    n    counter NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (job, n)
);

-- Until when a queue is paused: 0 not at all, 2 ** 63 - 1 until it is resumed. A queue that was never paused
-- has no row here.
CREATE TABLE pauses (
    queue queue_name PRIMARY KEY,
    until bigint NOT NULL
);

-- The rules of a queue for its lanes: the fields of Lanes in accoda/model.py, by the same names.
CREATE TABLE lane_rules (
    queue   queue_name PRIMARY KEY,
    "limit" counter,
    limits  jsonb NOT NULL,
    fair    boolean NOT NULL,
    weights jsonb NOT NULL,
    by_cost boolean NOT NULL,
    total   moment,
    shared  queue_name
);

CREATE INDEX lane_rules_shared ON lane_rules (shared) WHERE shared IS NOT NULL;

-- Lanes that are to be balanced by the next call that applies what is due: see verbs/lanes.sql. Not unique, since a
-- caller's own transaction writes here, and no other call may wait for its end.
CREATE TABLE unbalanced (
    id    bigint GENERATED ALWAYS AS IDENTITY,
    queue queue_name NOT NULL,
    lane  lane_name NOT NULL,
    PRIMARY KEY (queue, id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = off);

-- The statistics, written by the transaction that moves the job. One row for each queue would make all writers wait for
-- each other's commit; so a queue has as many rows (slots) as writers came at once, each writer takes one that is free,
-- and the sum counts. Only columns without an index change, in pages with room: PostgreSQL updates in place (HOT).
CREATE TABLE counts (
    queue   queue_name NOT NULL,
    slot    bigint GENERATED ALWAYS AS IDENTITY,
    ready   bigint NOT NULL DEFAULT 0,
    held    bigint NOT NULL DEFAULT 0,
    delayed bigint NOT NULL DEFAULT 0,
    taken   bigint NOT NULL DEFAULT 0,
    dead    bigint NOT NULL DEFAULT 0,
    done    bigint NOT NULL DEFAULT 0,
    retried bigint NOT NULL DEFAULT 0,
    buried  bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    promoted bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, slot)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.0,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- An expired document stays for a day as a tombstone, so that its versions go on.
CREATE TABLE documents (
    name       text COLLATE "C" PRIMARY KEY,
    value      bytea NOT NULL,
    version    moment NOT NULL,
    expires_at moment
) WITH (fillfactor = 70);

CREATE INDEX documents_expiry ON documents (expires_at) WHERE expires_at IS NOT NULL;

-- The highest version of a document whose tombstone is gone: new documents begin above it, so versions never go back.
CREATE TABLE forgotten_documents (version moment NOT NULL);
INSERT INTO forgotten_documents VALUES (0);
