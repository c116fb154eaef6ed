-- Two verbs: a look at one job without taking it, and the removal of a job unless more wait for it than were seen.
-- Nothing that is there changes, so calls of the version before go on.

-- peek: the job that holds the key `wanted` or, where that is NULL, the head of the line, with its waiters after the
-- first `seen` (NULL: none are asked for). job is NULL if there is none.
-- It locks nothing and, where nothing is due, writes nothing: a take at the same moment must not pass over the job.
-- The job and its waiters are read by one statement, so from one snapshot: none is counted that is not there, or there
-- and not counted. Waiters are numbered from 1 without a gap, so the rest of them is a range of the primary key.
CREATE FUNCTION peek(
    at bigint, q text, wanted text, seen integer, OUT moment bigint, OUT job job_info, OUT guests bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    shown record;
BEGIN
    moment := present(at);
    PERFORM apply_due(q, moment, 1000);
    IF wanted IS NOT NULL THEN
        PERFORM apply_own_due(moment, key_holders(ARRAY[q], ARRAY[wanted]));  -- however much else is due
    ELSIF EXISTS (SELECT FROM pauses p WHERE p.queue = q AND p.paused AND coalesce(p.paused_until > moment, true)) THEN
        RETURN;
    END IF;
    FOR tries IN 1 .. 1000 LOOP
        SELECT d AS info, j.id, j.state BETWEEN 0 AND 4 AND is_sound(
            j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at, j.crashes,
            j.rank, j.keep_for
        ) AS good, CASE WHEN j.waiters > seen THEN
            ARRAY(SELECT w.data FROM waiters w WHERE w.job = j.id AND w.n > seen ORDER BY w.n)
        END AS guests INTO shown
        FROM (
            SELECT * FROM (
                SELECT * FROM jobs r WHERE wanted IS NULL AND r.queue = q AND r.state = 0
                ORDER BY r.sort, r.id LIMIT 1
            ) head
            UNION ALL
            SELECT * FROM (
                SELECT * FROM jobs r WHERE r.queue || '' = q AND r.key = wanted AND r.state < 3 OFFSET 0
            ) holder
        ) j, describe(j::jobs) d;
        EXIT WHEN shown.id IS NULL;
        IF shown.good THEN
            job := shown.info;
            guests := shown.guests;
            RETURN;
        END IF;
        -- It cannot be read and is set aside: the next in line comes up, and a key is free.
        PERFORM mend(moment, ARRAY[shown.id]);
    END LOOP;
END $$;

-- drop: remove a job that is ready, delayed or taken, unless more wait for it than `seen`. Answer: whether it was.
-- The lock comes first, then the moment and the count. Whoever attaches locks the job too, so he is counted here, or
-- finds it gone and creates another.
CREATE FUNCTION drop_job(at bigint, q text, job_id bigint, seen integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    moment bigint;
BEGIN
    PERFORM FROM jobs j WHERE j.id = job_id AND j.queue || '' = q FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    moment := present(at);
    PERFORM apply_own_due(moment, ARRAY[job_id]);
    PERFORM mend(moment, ARRAY[job_id]);
    IF EXISTS (SELECT FROM jobs j WHERE j.id = job_id AND j.state + 0 < 3 AND j.waiters <= seen) THEN
        RETURN delete_jobs(ARRAY[job_id]) = 1;
    END IF;
    RETURN false;
END $$;

-- Settings as in 0007_settings.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN ('peek', 'drop_job')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', verb);
        EXECUTE format('ALTER FUNCTION %s SET search_path FROM CURRENT', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', verb);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', verb);
    END LOOP;
    -- It reads a line and the waiters in the order of an index.
    ALTER FUNCTION peek(bigint, text, text, integer) SET enable_sort = off;
END $$;
