-- The layout. Moments are integer milliseconds since the epoch, durations seconds.
--
-- The constraints refuse what no Accoda writes, from any program: STRICT keeps types apart, NOT NULL keeps out NaN, and no
-- number is above 2**54 (0x40000000000000), so that none overflows when it grows.

-- Numbers that only grow: the last id given to a job. AUTOINCREMENT would write its own table for every job; this is
-- written once a transaction, and like it never gives an id twice (it is a part of a lease's token).
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL CHECK (value BETWEEN 0 AND 0x40000000000000)
) STRICT, WITHOUT ROWID;

INSERT INTO counters VALUES ('last_id', 0);

-- One row: which boot of the machine, and by how many ms its wall clock was ahead of its time since boot when a process
-- last looked. The latest step of the clock: when, and by how many ms. See `clock_steps.py`.
CREATE TABLE host_clock (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    boot       TEXT NOT NULL,
    offset     INTEGER NOT NULL CHECK (offset BETWEEN -0x40000000000000 AND 0x40000000000000),
    stepped_at INTEGER CHECK (stepped_at BETWEEN 0 AND 0x40000000000000),
    stepped_by INTEGER CHECK (stepped_by BETWEEN -0x40000000000000 AND 0x40000000000000)
) STRICT;

-- One row a queue: the rules for its lanes as JSON, the name under which it shares its limits, the name from which on its
-- lanes may not be balanced yet (NULL: all are), its pause, and its statistics, kept up to date by every transaction that
-- moves a job.
CREATE TABLE queues (
    no           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    lanes        TEXT CHECK (json_valid(lanes)),
    shared       TEXT CHECK (shared <> ''),
    unbalanced   BLOB,
    paused       INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    paused_until INTEGER CHECK (paused_until BETWEEN 0 AND 0x40000000000000),
    ready        INTEGER NOT NULL DEFAULT 0 CHECK (ready BETWEEN 0 AND 0x40000000000000),
    delayed      INTEGER NOT NULL DEFAULT 0 CHECK (delayed BETWEEN 0 AND 0x40000000000000),
    taken        INTEGER NOT NULL DEFAULT 0 CHECK (taken BETWEEN 0 AND 0x40000000000000),
    dead         INTEGER NOT NULL DEFAULT 0 CHECK (dead BETWEEN 0 AND 0x40000000000000),
    done         INTEGER NOT NULL DEFAULT 0 CHECK (done BETWEEN 0 AND 0x40000000000000),
    retried      INTEGER NOT NULL DEFAULT 0 CHECK (retried BETWEEN 0 AND 0x40000000000000),
    buried       INTEGER NOT NULL DEFAULT 0 CHECK (buried BETWEEN 0 AND 0x40000000000000),
    expired      INTEGER NOT NULL DEFAULT 0 CHECK (expired BETWEEN 0 AND 0x40000000000000),
    cancelled    INTEGER NOT NULL DEFAULT 0 CHECK (cancelled BETWEEN 0 AND 0x40000000000000),
    promoted     INTEGER NOT NULL DEFAULT 0 CHECK (promoted BETWEEN 0 AND 0x40000000000000),
    held         INTEGER NOT NULL DEFAULT 0 CHECK (held BETWEEN 0 AND 0x40000000000000)
) STRICT;

CREATE INDEX queues_shared ON queues (shared, name) WHERE shared IS NOT NULL;

-- state: -1 held, 0 ready, 1 delayed, 2 taken, 3 dead, 4 done, 5 cancelled. So `state < 3` waits or runs.
-- sort: what orders the jobs of that state. Held: the rank; ready: the turn of a job that has one, else the rank;
-- delayed: the start time; taken: the end of the lease; dead: when it was buried; done, cancelled: until when it is
-- kept. So one index serves every state. (A turn is at most 1 from its rank, unless the rank is above 2**53, where levels
-- are not 1 apart: there a turn is as long as its cost and weight make it. `abs` would be shorter here, but it may fail,
-- and then SQLite keeps copies of all pages that a statement changes.)
CREATE TABLE jobs (
    id              INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 0x40000000000000),
    queue           INTEGER NOT NULL,
    state           INTEGER NOT NULL CHECK (state BETWEEN -1 AND 5),
    sort            REAL NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0 CHECK (attempts BETWEEN 0 AND 0x40000000000000),
    tries           INTEGER NOT NULL DEFAULT 0 CHECK (tries BETWEEN 0 AND 0x40000000000000),
    crashes         INTEGER NOT NULL DEFAULT 0 CHECK (crashes BETWEEN 0 AND 0x40000000000000),
    waiters         INTEGER NOT NULL DEFAULT 0 CHECK (waiters BETWEEN 0 AND 0x40000000000000),
    rank            REAL NOT NULL CHECK (rank BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
    cost            INTEGER NOT NULL CHECK (cost BETWEEN 0 AND 0x40000000000000),
    key             TEXT,
    created_at      INTEGER NOT NULL CHECK (created_at BETWEEN 0 AND 0x40000000000000),
    start_time      INTEGER NOT NULL CHECK (start_time BETWEEN 0 AND 0x40000000000000),
    prev_start_time INTEGER CHECK (prev_start_time BETWEEN 0 AND 0x40000000000000),
    keep_for        REAL NOT NULL CHECK (keep_for BETWEEN 0 AND 0x40000000000000),
    reports_to      TEXT CHECK (reports_to <> ''),
    worker          TEXT,
    taken_at        INTEGER CHECK (taken_at BETWEEN 0 AND 0x40000000000000),
    ended_at        INTEGER CHECK (ended_at BETWEEN 0 AND 0x40000000000000),
    reason          TEXT,
    data            BLOB NOT NULL,
    result          BLOB,
    lane            TEXT CHECK (lane <> ''),
    CHECK (CASE WHEN state > 0 THEN sort BETWEEN 0 AND 0x40000000000000
                WHEN lane IS NULL THEN sort = rank AND state = 0
                WHEN state = 0 THEN sort BETWEEN rank - 1e7 AND rank + 1e7
                ELSE sort = rank END),
    CHECK (state < 3 OR ended_at IS NOT NULL)
) STRICT;

-- Every index of a table ends with the rowid, here the id: equal ranks go first in, first out.
CREATE INDEX jobs_line ON jobs (queue, state, sort);

-- For browsing by id and for the oldest ready job. Not for taken jobs: those are few, and it would cost every take.
CREATE INDEX jobs_by_id ON jobs (queue, state, id) WHERE state <> 2;

-- Jobs that have ended by their end, for people and for retention. No other job is in it, so none pays for it.
CREATE INDEX jobs_ended ON jobs (queue, state, ended_at) WHERE state >= 3;

-- Which job holds a key. Settling, burying or cancelling a job takes it out of this index, and so gives the key back.
CREATE UNIQUE INDEX jobs_key ON jobs (queue, key) WHERE key IS NOT NULL AND state < 3;

-- The jobs of each lane that are held, ready or taken. Without a look into the table it says how many there are, which
-- held job is the best (lowest sort, which is its rank), and which ready one has the last turn or the worst rank.
-- Like the next one it has no job without a lane.
CREATE INDEX jobs_lanes ON jobs (queue, lane, state, sort, rank) WHERE lane IS NOT NULL AND state <= 2 AND state <> 1;

-- The turns in the line, for the lowest one of a level.
CREATE INDEX jobs_turns ON jobs (queue, sort) WHERE lane IS NOT NULL AND state = 0;

-- Numbered from 1 in the order in which they joined a job.
CREATE TABLE waiters (
    job  INTEGER NOT NULL,
    n    INTEGER NOT NULL CHECK (n BETWEEN 1 AND 0x40000000000000),
    data BLOB NOT NULL,
    PRIMARY KEY (job, n)
) STRICT, WITHOUT ROWID;

-- An expired document stays for a while as a tombstone, so that its versions go on.
CREATE TABLE documents (
    name       TEXT PRIMARY KEY,
    value      BLOB NOT NULL,
    version    INTEGER NOT NULL CHECK (version BETWEEN 1 AND 0x40000000000000),
    expires_at INTEGER CHECK (expires_at BETWEEN 0 AND 0x40000000000000)
) STRICT, WITHOUT ROWID;

CREATE INDEX documents_expiry ON documents (expires_at) WHERE expires_at IS NOT NULL;
