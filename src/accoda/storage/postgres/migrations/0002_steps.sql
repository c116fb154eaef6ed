-- Steps that the verbs share. They are called by the verbs only, whose search_path and planner settings hold for them.
-- They are PL/pgSQL even where SQL would do: a session plans those once, and functions in plain SQL at every call.
--
-- A plan is made once and must fit a table of ten jobs and of ten million, so no statement leaves the planner a choice of
-- where to begin: rows are found by `id = ANY`, by `ctid = ANY`, or by a LATERAL subquery with OFFSET 0, which it can
-- neither turn round nor merge. `queue || ''` and `state + 0` are no mistake: they keep an index out of the choice that
-- would look fine on an empty table. Values for rows found by `id = ANY (ids)`, with ids in ascending order, are
-- `value[width_bucket(id, ids)]`: a binary search.

-- The present moment: the server's, unless a test says otherwise. This is the only place that reads a clock.
-- clock_timestamp() and not now(): a caller's transaction may have begun long ago.
CREATE FUNCTION present(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- Add to the counters of a queue.
-- It never waits: it takes a slot that nobody has locked, or makes a new one. So writers do not queue up behind each
-- other's commit, and it takes no part in any deadlock. `apart` is for a caller's own transaction, which may stay open
-- for long or see an old snapshot: it gets a slot of its own. Once in a while the slots that are free are folded.
-- Nothing is lost to a concurrent update: the subquery locks the slot's last version, and the update, which may have
-- seen an older one, goes on to that under READ COMMITTED.
CREATE FUNCTION count_up(
    q text, d_ready bigint, d_delayed bigint, d_taken bigint, d_dead bigint = 0,
    d_done bigint = 0, d_retried bigint = 0, d_buried bigint = 0, d_expired bigint = 0, apart boolean = false
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT apart THEN
        UPDATE counts
        SET ready = ready + d_ready, delayed = delayed + d_delayed, taken = taken + d_taken, dead = dead + d_dead,
            done = done + d_done, retried = retried + d_retried, buried = buried + d_buried,
            expired = expired + d_expired
        WHERE queue = q AND slot = (
            SELECT c.slot FROM counts c WHERE c.queue = q ORDER BY c.slot LIMIT 1 FOR UPDATE SKIP LOCKED
        );
        IF FOUND THEN
            IF random() < 0.02 THEN
                PERFORM fold_counts(q);
            END IF;
            RETURN;
        END IF;
    END IF;
    INSERT INTO counts (queue, ready, delayed, taken, dead, done, retried, buried, expired)
    VALUES (q, d_ready, d_delayed, d_taken, d_dead, d_done, d_retried, d_buried, d_expired);
END $$;

-- Where more than a few slots are free, make one of them.
CREATE FUNCTION fold_counts(q text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    free bigint[] := ARRAY(SELECT slot FROM counts WHERE queue = q ORDER BY slot LIMIT 100 FOR UPDATE SKIP LOCKED);
BEGIN
    IF cardinality(free) <= 8 THEN
        RETURN;
    END IF;
    WITH gone AS (DELETE FROM counts WHERE queue = q AND slot = ANY (free) RETURNING *)
    INSERT INTO counts (queue, ready, delayed, taken, dead, done, retried, buried, expired)
    SELECT q, sum(ready), sum(delayed), sum(taken), sum(dead), sum(done), sum(retried), sum(buried), sum(expired)
    FROM gone;
END $$;

-- Start what is delayed no longer, take back what was leased until now, forget what was kept until now.
-- SKIP LOCKED: a job that is locked is being settled, extended, removed, or taken back by another call at this very
-- moment, and that call decides. So this never waits and takes no part in any deadlock.
CREATE FUNCTION apply_due(q text, moment double precision) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    due     tid[];  -- stay valid: the rows are locked, so nobody moves them
    started bigint;
    ended   bigint;
    over    bigint[];
BEGIN
    IF coalesce(least(
        (SELECT sort FROM jobs WHERE queue = q AND state = 1 ORDER BY sort LIMIT 1),
        (SELECT sort FROM jobs WHERE queue = q AND state = 2 ORDER BY sort LIMIT 1),
        (SELECT sort FROM jobs WHERE queue = q AND state = 4 ORDER BY sort LIMIT 1)
    ) > moment, true) THEN
        RETURN;
    END IF;
    due := ARRAY(
        SELECT ctid FROM jobs WHERE queue = q AND state = 1 AND sort <= moment ORDER BY sort FOR UPDATE SKIP LOCKED
    );
    UPDATE jobs SET state = 0, sort = rank WHERE ctid = ANY (due);
    GET DIAGNOSTICS started = ROW_COUNT;
    due := ARRAY(
        SELECT ctid FROM jobs WHERE queue = q AND state = 2 AND sort <= moment ORDER BY sort FOR UPDATE SKIP LOCKED
    );
    UPDATE jobs
    SET state = 0, sort = rank, attempts = attempts + 1, prev_start_time = start_time, start_time = moment
    WHERE ctid = ANY (due);
    GET DIAGNOSTICS ended = ROW_COUNT;
    IF started + ended > 0 THEN
        PERFORM count_up(q, started + ended, -started, -ended, d_expired => ended);
    END IF;
    over := ARRAY(
        SELECT id FROM jobs WHERE queue = q AND state = 4 AND sort <= moment ORDER BY sort FOR UPDATE SKIP LOCKED
    );
    IF cardinality(over) > 0 THEN
        DELETE FROM waiters WHERE job = ANY (over);
        DELETE FROM jobs WHERE id = ANY (over);
    END IF;
END $$;

-- Lock jobs by id, lowest first. Every call that waits for locks of several jobs takes them in this order, so two such
-- calls cannot wait for each other.
CREATE FUNCTION lock_jobs(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT unnest(ids) AS id ORDER BY id) wanted,
            LATERAL (SELECT FROM jobs j WHERE j.id = wanted.id FOR UPDATE) locked;
END $$;

-- The jobs that hold these keys, as far as they can be seen.
CREATE FUNCTION key_holders(queues text[], keys text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT held.id FROM unnest(queues, keys) AS u(queue, key), LATERAL (
            SELECT j.id FROM jobs j WHERE j.queue || '' = u.queue AND j.key = u.key AND j.state < 3 OFFSET 0
        ) held
    );
END $$;
