-- What became of a job since it began afresh: `crashes` counts the leases that ended without an outcome, `fresh_at` is
-- what `attempts` was then. Rows that are there keep their bytes: SQLite reads the defaults for them, and a zero takes no
-- room in a new row but its type.
ALTER TABLE jobs ADD COLUMN fresh_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0;
