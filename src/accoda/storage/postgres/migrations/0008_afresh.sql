-- What a job went through since it began afresh, which it does when it is enqueued, revived or replaced.
--   fresh_at: its attempts at that moment.
--   crashes:  leases that ended since then without an outcome.
-- A constant default is kept in the catalog: no row is written, however many there are.
--
-- Calls go on while this runs: they wait for the table, then are carried out by the functions as they were, or as they
-- are now. So no name, argument or column that a call of the version before uses goes away here.

ALTER TABLE jobs ADD COLUMN fresh_at integer NOT NULL DEFAULT 0, ADD COLUMN crashes integer NOT NULL DEFAULT 0;

-- As in 0002_steps, and a lease that ended is a crash.
CREATE OR REPLACE FUNCTION apply_due(q text, moment double precision) RETURNS void LANGUAGE plpgsql AS $$
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
    SET state = 0, sort = rank, attempts = attempts + 1, crashes = crashes + 1, prev_start_time = start_time,
        start_time = moment
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

-- As in 0003_enqueue, and the job begins afresh.
CREATE OR REPLACE FUNCTION replace_job(moment bigint, held jobs, new new_job, apart boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ran     integer := (held.state = 2)::int;
    overdue integer := (held.state = 2 AND held.sort <= moment)::int;  -- that lease ended by itself
    later   integer := (new.start > moment)::int;
BEGIN
    UPDATE jobs j
    SET state = later, sort = CASE later WHEN 1 THEN new.start ELSE new.rank END, rank = new.rank, cost = new.cost,
        keep_for = new.keep_for, data = new.data, attempts = j.attempts + ran, fresh_at = j.attempts + ran, crashes = 0,
        start_time = new.start, prev_start_time = CASE ran WHEN 1 THEN j.start_time ELSE j.prev_start_time END
    WHERE j.id = held.id;
    PERFORM count_up(
        held.queue, (1 - later) - (held.state = 0)::int, later - (held.state = 1)::int, -ran,
        d_expired => overdue, apart => apart
    );
END $$;

-- As in 0004_take, with the two new fields.
ALTER TYPE taken_job ADD ATTRIBUTE fresh_at integer, ADD ATTRIBUTE crashes integer;

CREATE OR REPLACE FUNCTION take(at bigint, q text, most bigint, lease bigint, max_cost bigint, who text)
RETURNS SETOF taken_job LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
    chosen tid[];  -- stay valid: the rows are locked, so nobody moves them
    taken  bigint;
BEGIN
    PERFORM apply_due(q, moment);
    IF EXISTS (SELECT FROM pauses p WHERE p.queue = q AND p.paused AND coalesce(p.paused_until > moment, true)) THEN
        RETURN;
    END IF;
    IF max_cost IS NULL THEN
        chosen := ARRAY(
            SELECT j.ctid FROM jobs j WHERE j.queue = q AND j.state = 0
            ORDER BY j.sort, j.id LIMIT most FOR UPDATE SKIP LOCKED
        );
    ELSE
        chosen := afford(q, most, max_cost);
    END IF;
    RETURN QUERY
        WITH leased AS (
            UPDATE jobs j SET state = 2, sort = moment + lease, worker = who, taken_at = moment
            WHERE j.ctid = ANY (chosen)
            RETURNING j.id, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time, j.prev_start_time,
                      j.waiters, j.fresh_at, j.crashes
        )
        SELECT * FROM leased l ORDER BY l.rank, l.id;
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken > 0 THEN
        PERFORM count_up(q, -taken, 0, taken);
    END IF;
END $$;

-- As in 0006_people, and the job begins afresh.
CREATE OR REPLACE FUNCTION revive(at bigint, ids bigint[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    moment  bigint := present(at);
    revived text[] := '{}';
    wanted  bigint;
    owner   text;
BEGIN
    PERFORM lock_jobs(ids);
    FOREACH wanted IN ARRAY ids LOOP
        BEGIN
            UPDATE jobs j
            SET state = 0, sort = j.rank, attempts = j.attempts + 1, fresh_at = j.attempts + 1, crashes = 0,
                prev_start_time = j.start_time, start_time = moment, ended_at = NULL
            WHERE j.id = wanted AND j.state = 3 RETURNING j.queue INTO owner;
            CONTINUE WHEN NOT FOUND;
            PERFORM count_up(owner, 1, 0, 0, -1);
            revived := revived || owner;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END LOOP;
    RETURN revived;
END $$;

-- As in 0006_people, with the two new fields.
DROP FUNCTION find(bigint, bigint);
DROP FUNCTION browse(bigint, text, smallint, bigint, bigint);
DROP FUNCTION describe(jobs);

CREATE TYPE job_info AS (
    id bigint, queue text, state smallint, data bytea, rank double precision, cost bigint, key text, attempts integer,
    created_at bigint, start_time bigint, prev_start_time bigint, waiters integer, keep_for double precision,
    worker text, taken_at bigint, lease_until bigint, ended_at bigint, reason text, result bytea, fresh_at integer,
    crashes integer
);

CREATE FUNCTION describe(j jobs) RETURNS SETOF job_info LANGUAGE sql STABLE AS $$
    SELECT j.id, j.queue, j.state, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time,
           j.prev_start_time, j.waiters, j.keep_for, j.worker, j.taken_at,
           CASE j.state WHEN 2 THEN j.sort::bigint END, j.ended_at, j.reason, j.result, j.fresh_at, j.crashes
$$;

CREATE FUNCTION find(at bigint, job_id bigint) RETURNS SETOF job_info LANGUAGE plpgsql AS $$
BEGIN
    PERFORM apply_due(j.queue, present(at)) FROM jobs j WHERE j.id = job_id;
    RETURN QUERY SELECT d.* FROM jobs j, describe(j) d WHERE j.id = job_id;
END $$;

CREATE FUNCTION browse(at bigint, q text, which smallint, after bigint, most bigint)
RETURNS SETOF job_info LANGUAGE plpgsql AS $$
BEGIN
    PERFORM apply_due(q, present(at));
    IF which = 2 THEN
        RETURN QUERY SELECT d.* FROM (
            SELECT * FROM (SELECT * FROM jobs j WHERE j.queue = q AND j.state = 2 OFFSET 0) t
            WHERE t.id > after ORDER BY t.id LIMIT most
        ) j, describe(j::jobs) d;
    ELSE
        RETURN QUERY SELECT d.* FROM (
            SELECT * FROM jobs j WHERE j.queue = q AND j.state = which AND j.state <> 2 AND j.id > after
            ORDER BY j.id LIMIT most
        ) j, describe(j::jobs) d;
    END IF;
END $$;

-- A function that is made anew has lost its settings: those of 0007_settings again.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN ('take', 'revive', 'find', 'browse')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', verb);
        EXECUTE format('ALTER FUNCTION %s SET search_path FROM CURRENT', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', verb);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', verb);
    END LOOP;
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN ('take', 'browse')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', verb);
    END LOOP;
END $$;
