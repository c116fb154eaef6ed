-- The first layout. Moments are integer milliseconds since the epoch, durations seconds.

-- Numbers that only grow: the last id given to a job. AUTOINCREMENT would write its own table for every job; this is
-- written once a transaction, and like it never gives an id twice (a lease's token is made of id and attempts).
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counters VALUES ('last_id', 0);

-- One row a queue: its pause, and its statistics, kept up to date by every transaction that moves a job.
CREATE TABLE queues (
    no           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    paused       INTEGER NOT NULL DEFAULT 0,
    paused_until INTEGER,
    ready        INTEGER NOT NULL DEFAULT 0,
    delayed      INTEGER NOT NULL DEFAULT 0,
    taken        INTEGER NOT NULL DEFAULT 0,
    dead         INTEGER NOT NULL DEFAULT 0,
    done         INTEGER NOT NULL DEFAULT 0,
    retried      INTEGER NOT NULL DEFAULT 0,
    buried       INTEGER NOT NULL DEFAULT 0,
    expired      INTEGER NOT NULL DEFAULT 0
) STRICT;

-- state: 0 ready, 1 delayed, 2 taken, 3 dead, 4 done.
-- sort: what orders the jobs of that state. Ready: the rank; delayed: the start time; taken: the end of the lease;
-- dead: when it was buried; done: until when it is kept. So one index serves every state.
CREATE TABLE jobs (
    id              INTEGER PRIMARY KEY,
    queue           INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    sort            REAL NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0,
    waiters         INTEGER NOT NULL DEFAULT 0,
    rank            REAL NOT NULL,
    cost            INTEGER NOT NULL,
    key             TEXT,
    created_at      INTEGER NOT NULL,
    start_time      INTEGER NOT NULL,
    prev_start_time INTEGER,
    keep_for        REAL NOT NULL,
    worker          TEXT,
    taken_at        INTEGER,
    ended_at        INTEGER,
    reason          TEXT,
    data            BLOB NOT NULL,
    result          BLOB
) STRICT;

-- Every index of a table ends with the rowid, here the id: equal ranks go first in, first out.
CREATE INDEX jobs_line ON jobs (queue, state, sort);

-- For browsing by id and for the oldest ready job. Not for taken jobs: those are few, and it would cost every take.
CREATE INDEX jobs_by_id ON jobs (queue, state, id) WHERE state <> 2;

-- Who holds a key. Settling or burying a job takes it out of this index, and so gives the key back.
CREATE UNIQUE INDEX jobs_key ON jobs (queue, key) WHERE key IS NOT NULL AND state < 3;

CREATE TABLE waiters (
    job  INTEGER NOT NULL,
    n    INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (job, n)
) STRICT, WITHOUT ROWID;

-- An expired document stays for a while as a tombstone, so that its versions go on.
CREATE TABLE documents (
    name       TEXT PRIMARY KEY,
    value      BLOB NOT NULL,
    version    INTEGER NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX documents_expiry ON documents (expires_at) WHERE expires_at IS NOT NULL;
