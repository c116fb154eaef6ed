-- The first layout. Moments are integer milliseconds since the epoch, durations seconds.
-- Every script of this folder runs with the store's schema as search_path.

CREATE SEQUENCE job_ids AS bigint;  -- no cache: ids grow over all sessions, and equal ranks go by id

-- state: 0 ready, 1 delayed, 2 taken, 3 dead, 4 done.
-- sort: what orders the jobs of that state. Ready: the rank; delayed: the start time; taken: the end of the lease;
-- dead: when it was buried; done: until when it is kept. So one index serves every state.
-- Wide columns last and fixed ones first, so that nothing is lost to alignment.
CREATE TABLE jobs (
    id              bigint NOT NULL PRIMARY KEY,
    sort            double precision NOT NULL,
    rank            double precision NOT NULL,
    cost            bigint NOT NULL,
    created_at      bigint NOT NULL,
    start_time      bigint NOT NULL,
    keep_for        double precision NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    waiters         integer NOT NULL DEFAULT 0,
    state           smallint NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    data            bytea NOT NULL,
    prev_start_time bigint,
    taken_at        bigint,
    ended_at        bigint,
    key             text COLLATE "C",
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

-- For browsing by id and for the oldest ready job. Not for taken jobs: those are few, and it would cost every take.
CREATE INDEX jobs_by_id ON jobs (queue, state, id) WHERE state <> 2;

-- Who holds a key. Settling or burying a job takes it out of this index, and so gives the key back.
CREATE UNIQUE INDEX jobs_key ON jobs (key, queue) WHERE key IS NOT NULL AND state < 3;

CREATE TABLE waiters (
    job  bigint NOT NULL,
    n    integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (job, n)
);

-- The pause of a queue. A queue that was never paused has no row here.
CREATE TABLE pauses (
    queue        text COLLATE "C" PRIMARY KEY,
    paused       boolean NOT NULL,
    paused_until bigint
);

-- The statistics, written by the transaction that moves the job. One row a queue would make all writers wait for each
-- other's commit; so a queue has as many rows (slots) as writers came at once, each takes one that is free, and the sum
-- counts. Only columns without an index change, in pages with room: PostgreSQL then updates in place (HOT).
CREATE TABLE counts (
    queue   text COLLATE "C" NOT NULL,
    slot    bigint GENERATED ALWAYS AS IDENTITY,
    ready   bigint NOT NULL DEFAULT 0,
    delayed bigint NOT NULL DEFAULT 0,
    taken   bigint NOT NULL DEFAULT 0,
    dead    bigint NOT NULL DEFAULT 0,
    done    bigint NOT NULL DEFAULT 0,
    retried bigint NOT NULL DEFAULT 0,
    buried  bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, slot)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.0,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- An expired document stays for a day as a tombstone, so that its versions go on.
CREATE TABLE documents (
    name       text COLLATE "C" PRIMARY KEY,
    value      bytea NOT NULL,
    version    bigint NOT NULL,
    expires_at bigint
) WITH (fillfactor = 70);

-- The highest version of a document whose tombstone is gone: new documents begin above it, so versions never go back.
CREATE TABLE forgotten_documents (version bigint NOT NULL);
INSERT INTO forgotten_documents VALUES (0);

CREATE INDEX documents_expiry ON documents (expires_at) WHERE expires_at IS NOT NULL;
