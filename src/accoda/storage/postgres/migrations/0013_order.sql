-- A look must not disturb the order. Until now it locked the first free job for a moment, and a take of another process at
-- that moment passed over it and handed out those behind it.
--
-- What orders the first job of a state that no open transaction has locked or changed. Seen without a lock: such a job
-- carries the number of that transaction (xmax), and each transaction that writes holds a lock on its own number until it
-- ends. A take that begins right after this look may still find the job locked: then it looks again, as it always does.
CREATE OR REPLACE FUNCTION first_free(q text, which integer) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        WITH open AS MATERIALIZED (
            SELECT transactionid FROM pg_locks WHERE locktype = 'transactionid' AND granted AND pid <> pg_backend_pid()
        )
        SELECT j.sort FROM jobs j
        WHERE j.queue = q AND j.state = which AND NOT EXISTS (SELECT FROM open o WHERE o.transactionid = j.xmax)
        ORDER BY j.sort, j.id LIMIT 1
    );
END $$;
