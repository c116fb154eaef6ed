-- The way of a single job from an idle producer to an idle worker with fewer steps: there every statement runs cold, and a
-- nested call costs more than what it does. Nothing that is there changes its name or arguments, so calls of the version
-- before go on. Where a counter is written in place, it is as count_up does it, which is called where no slot is free.

-- As in 0017_lean.
CREATE OR REPLACE FUNCTION enqueue_one(
    at bigint, q text, content bytea, its_rank double precision, its_cost bigint, its_keep double precision, news text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
    made   bigint := nextval('job_ids');
BEGIN
    INSERT INTO jobs (id, queue, state, sort, rank, cost, created_at, start_time, keep_for, data)
    VALUES (made, q, 0, its_rank, its_rank, its_cost, moment, moment, its_keep, content);
    UPDATE counts SET ready = ready + 1
    WHERE queue = q AND slot = (
        SELECT c.slot FROM counts c WHERE c.queue = q ORDER BY c.slot LIMIT 1 FOR UPDATE SKIP LOCKED
    );
    IF NOT FOUND THEN
        PERFORM count_up(q, 1, 0, 0);
    ELSIF random() < 0.02 THEN
        PERFORM fold_counts(q);
    END IF;
    IF news IS NOT NULL THEN
        PERFORM pg_notify(current_schema(), news);
    END IF;
    RETURN made;
END $$;

-- As in 0017_lean. One statement sees whether something is due and whether the queue is paused, and chooses what is next:
-- `s` is made first, and of the arrays only the one that is asked for. Where nothing is ready and a few delayed jobs have
-- reached their start, those are taken as they are, and not made ready first: all of them, so in the order of a line.
CREATE OR REPLACE FUNCTION take(at bigint, q text, most bigint, lease bigint, max_cost bigint, who text)
RETURNS SETOF taken_job LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
    wanted bigint := most;
    aside  bigint := 0;
    chosen tid[];  -- stay valid: the rows are locked, so nobody moves them
    got    bigint;
    late   boolean := false;  -- the chosen are delayed no longer
    starts double precision;
    ends   double precision;
    shut   boolean;
BEGIN
    SELECT s.starts, s.ends, s.shut, CASE
        WHEN s.shut OR max_cost IS NOT NULL OR s.ends <= moment THEN NULL
        WHEN coalesce(s.starts > moment, true) THEN ARRAY(
            SELECT j.ctid FROM jobs j WHERE j.queue = q AND j.state = 0
            ORDER BY j.sort, j.id LIMIT wanted FOR UPDATE SKIP LOCKED
        )
        WHEN (SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = 0 ORDER BY j.sort, j.id LIMIT 1) IS NULL
        THEN ARRAY(
            SELECT j.ctid FROM jobs j WHERE j.queue = q AND j.state = 1 AND j.sort <= moment
            ORDER BY j.sort LIMIT wanted + 1 FOR UPDATE SKIP LOCKED
        )
    END
    INTO starts, ends, shut, chosen
    FROM (
        SELECT (SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 1 ORDER BY j.sort LIMIT 1) AS starts,
               least(
                   (SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 2 ORDER BY j.sort LIMIT 1),
                   (SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 4 ORDER BY j.sort LIMIT 1)
               ) AS ends,
               EXISTS (SELECT FROM pauses p WHERE p.queue = q AND p.paused AND coalesce(p.paused_until > moment, true))
                   AS shut
        OFFSET 0
    ) s;
    IF ends <= moment THEN
        PERFORM apply_due(q, moment, 1000);
    ELSIF starts <= moment THEN
        late := coalesce(cardinality(chosen) BETWEEN 1 AND wanted, false);
        IF NOT late THEN
            chosen := NULL;
            PERFORM start_delayed(q, moment, 1000);
        END IF;
    END IF;
    IF shut THEN
        RETURN;
    END IF;
    LOOP
        IF chosen IS NULL AND max_cost IS NULL THEN
            chosen := ARRAY(
                SELECT j.ctid FROM jobs j WHERE j.queue = q AND j.state = 0
                ORDER BY j.sort, j.id LIMIT wanted FOR UPDATE SKIP LOCKED
            );
        ELSIF chosen IS NULL THEN
            chosen := afford(q, wanted, max_cost);
        END IF;
        EXIT WHEN cardinality(chosen) = 0;
        IF cardinality(chosen) = 1 THEN  -- as below, without a sort
            RETURN QUERY
                UPDATE jobs j SET state = 2, sort = moment + lease, worker = who, taken_at = moment
                WHERE j.ctid = ANY (chosen) AND (NOT late OR j.sort = j.start_time) AND is_sound(
                    j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at,
                    j.crashes, j.rank, j.keep_for
                )
                RETURNING j.id, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time, j.prev_start_time,
                          j.waiters, j.fresh_at, j.crashes;
        ELSE
            RETURN QUERY
                WITH leased AS (
                    UPDATE jobs j SET state = 2, sort = moment + lease, worker = who, taken_at = moment
                    WHERE j.ctid = ANY (chosen) AND (NOT late OR j.sort = j.start_time) AND is_sound(
                        j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at,
                        j.crashes, j.rank, j.keep_for
                    )
                    RETURNING j.id, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time,
                              j.prev_start_time, j.waiters, j.fresh_at, j.crashes
                )
                SELECT * FROM leased l ORDER BY l.rank, l.id;
        END IF;
        GET DIAGNOSTICS got = ROW_COUNT;
        IF late AND got > 0 THEN
            PERFORM count_up(q, 0, -got, got);
        ELSIF got > 0 THEN
            UPDATE counts SET ready = ready - got, taken = taken + got
            WHERE queue = q AND slot = (
                SELECT c.slot FROM counts c WHERE c.queue = q ORDER BY c.slot LIMIT 1 FOR UPDATE SKIP LOCKED
            );
            IF NOT FOUND THEN
                PERFORM count_up(q, -got, 0, got);
            ELSIF random() < 0.02 THEN
                PERFORM fold_counts(q);
            END IF;
        END IF;
        EXIT WHEN got = cardinality(chosen);
        -- What is still as it was of the chosen cannot be read. With a budget nobody knows what was spent: the call ends.
        PERFORM set_aside(moment, ARRAY(SELECT j.id FROM jobs j WHERE j.ctid = ANY (chosen) AND j.state < 2));
        aside := aside + cardinality(chosen) - got;
        wanted := wanted - got;
        chosen := NULL;
        late := false;
        EXIT WHEN wanted <= 0 OR aside >= 1000 OR (max_cost IS NOT NULL AND got > 0);
    END LOOP;
END $$;

-- Settings as in 0007_settings.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN ('enqueue_one', 'take')
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
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname = 'take'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', verb);
    END LOOP;
END $$;
