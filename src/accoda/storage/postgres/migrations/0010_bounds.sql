-- One call applies a bounded part of what is due, the oldest moments first; those that follow apply the rest.
-- Functions that calls of the version before may just be in keep their names and arguments.

-- Start up to `most` jobs that are delayed no longer. Answer: how many were dealt with.
CREATE FUNCTION start_delayed(q text, moment double precision, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    due     tid[] := ARRAY(
        SELECT ctid FROM jobs WHERE queue = q AND state = 1 AND sort <= moment ORDER BY sort LIMIT most
        FOR UPDATE SKIP LOCKED
    );  -- stay valid: the rows are locked, so nobody moves them
    started bigint;
BEGIN
    UPDATE jobs j SET state = 0, sort = rank
    WHERE ctid = ANY (due) AND sort = start_time AND is_sound(
        j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at, j.crashes, j.rank,
        j.keep_for
    );
    GET DIAGNOSTICS started = ROW_COUNT;
    IF started > 0 THEN
        PERFORM count_up(q, started, -started, 0);
    END IF;
    IF started < cardinality(due) THEN  -- those that are still where they were
        PERFORM set_aside(moment::bigint, ARRAY(SELECT id FROM jobs WHERE ctid = ANY (due) AND state = 1));
    END IF;
    RETURN cardinality(due);
END $$;

-- Take back up to `most` jobs that were leased until now. Answer: how many were dealt with.
CREATE FUNCTION end_leases(q text, moment double precision, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    due   tid[] := ARRAY(
        SELECT ctid FROM jobs WHERE queue = q AND state = 2 AND sort <= moment ORDER BY sort LIMIT most
        FOR UPDATE SKIP LOCKED
    );
    ended bigint;
BEGIN
    UPDATE jobs j
    SET state = 0, sort = rank, attempts = attempts + 1, crashes = crashes + 1, prev_start_time = start_time,
        start_time = moment
    WHERE ctid = ANY (due) AND is_sound(
        j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at, j.crashes, j.rank,
        j.keep_for
    );
    GET DIAGNOSTICS ended = ROW_COUNT;
    IF ended > 0 THEN
        PERFORM count_up(q, ended, 0, -ended, d_expired => ended);
    END IF;
    IF ended < cardinality(due) THEN
        PERFORM set_aside(moment::bigint, ARRAY(SELECT id FROM jobs WHERE ctid = ANY (due) AND state = 2));
    END IF;
    RETURN cardinality(due);
END $$;

-- Forget up to `most` results that were kept until now. Answer: how many.
CREATE FUNCTION forget_kept(q text, moment double precision, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    over bigint[] := ARRAY(
        SELECT id FROM jobs WHERE queue = q AND state = 4 AND sort <= moment ORDER BY sort LIMIT most
        FOR UPDATE SKIP LOCKED
    );
BEGIN
    IF cardinality(over) > 0 THEN
        DELETE FROM waiters WHERE job = ANY (over);
        DELETE FROM jobs WHERE id = ANY (over);
    END IF;
    RETURN cardinality(over);
END $$;

-- Apply up to `most` due moves of a queue, those that make jobs ready first. Answer: how many.
-- SKIP LOCKED: a job that is locked is being settled, extended, removed, or taken back by another call at this very
-- moment, and that call decides. So this never waits and takes no part in any deadlock.
CREATE FUNCTION apply_due(q text, moment double precision, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    start     double precision := (SELECT sort FROM jobs WHERE queue = q AND state = 1 ORDER BY sort LIMIT 1);
    lease_end double precision := (SELECT sort FROM jobs WHERE queue = q AND state = 2 ORDER BY sort LIMIT 1);
    over      double precision := (SELECT sort FROM jobs WHERE queue = q AND state = 4 ORDER BY sort LIMIT 1);
    applied   bigint := 0;
BEGIN
    IF coalesce(least(start, lease_end, over) > moment, true) THEN
        RETURN 0;
    END IF;
    IF start <= moment AND coalesce(start <= lease_end, true) THEN
        applied := start_delayed(q, moment, most);
    END IF;
    IF lease_end <= moment AND applied < most THEN
        applied := applied + end_leases(q, moment, most - applied);
    END IF;
    IF start <= moment AND start > lease_end AND applied < most THEN
        applied := applied + start_delayed(q, moment, most - applied);
    END IF;
    IF over <= moment AND applied < most THEN
        applied := applied + forget_kept(q, moment, most - applied);
    END IF;
    RETURN applied;
END $$;

CREATE OR REPLACE FUNCTION apply_due(q text, moment double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM apply_due(q, moment, 1000);
END $$;

-- Apply what is due for jobs that a call names, however much else is due.
CREATE FUNCTION apply_own_due(moment double precision, ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    j jobs;
BEGIN
    FOR j IN
        SELECT * FROM jobs WHERE id = ANY (ids) AND state IN (1, 2, 4) AND sort <= moment FOR UPDATE SKIP LOCKED
    LOOP
        IF NOT is_sound(
            j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at, j.crashes,
            j.rank, j.keep_for
        ) OR (j.state = 1 AND j.sort <> j.start_time) THEN
            PERFORM set_aside(moment::bigint, ARRAY[j.id]);
        ELSIF j.state = 1 THEN
            UPDATE jobs SET state = 0, sort = rank WHERE id = j.id;
            PERFORM count_up(j.queue, 1, -1, 0);
        ELSIF j.state = 2 THEN
            UPDATE jobs
            SET state = 0, sort = rank, attempts = attempts + 1, crashes = crashes + 1, prev_start_time = start_time,
                start_time = moment
            WHERE id = j.id;
            PERFORM count_up(j.queue, 1, 0, -1, d_expired => 1);
        ELSE
            DELETE FROM waiters WHERE job = j.id;
            DELETE FROM jobs WHERE id = j.id;
        END IF;
    END LOOP;
END $$;

-- As in 0008_afresh. Jobs of the head that cannot be read are set aside, up to a bound, and the next in line come up.
CREATE OR REPLACE FUNCTION take(at bigint, q text, most bigint, lease bigint, max_cost bigint, who text)
RETURNS SETOF taken_job LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
    wanted bigint := most;
    budget bigint := max_cost;
    aside  bigint := 0;
    chosen tid[];  -- stay valid: the rows are locked, so nobody moves them
    taken  bigint;
BEGIN
    PERFORM apply_due(q, moment, 1000);
    IF EXISTS (SELECT FROM pauses p WHERE p.queue = q AND p.paused AND coalesce(p.paused_until > moment, true)) THEN
        RETURN;
    END IF;
    LOOP
        IF max_cost IS NULL THEN
            chosen := ARRAY(
                SELECT j.ctid FROM jobs j WHERE j.queue = q AND j.state = 0
                ORDER BY j.sort, j.id LIMIT wanted FOR UPDATE SKIP LOCKED
            );
        ELSE
            chosen := afford(q, wanted, budget);
        END IF;
        RETURN QUERY
            WITH leased AS (
                UPDATE jobs j SET state = 2, sort = moment + lease, worker = who, taken_at = moment
                WHERE j.ctid = ANY (chosen) AND is_sound(
                    j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at,
                    j.crashes, j.rank, j.keep_for
                )
                RETURNING j.id, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time, j.prev_start_time,
                          j.waiters, j.fresh_at, j.crashes
            )
            SELECT * FROM leased l ORDER BY l.rank, l.id;
        GET DIAGNOSTICS taken = ROW_COUNT;
        IF taken > 0 THEN
            PERFORM count_up(q, -taken, 0, taken);
        END IF;
        EXIT WHEN taken = cardinality(chosen);
        -- What is still ready of the chosen cannot be read. With a budget nobody knows what was spent: the call ends.
        PERFORM set_aside(moment, ARRAY(SELECT j.id FROM jobs j WHERE j.ctid = ANY (chosen) AND j.state = 0));
        aside := aside + cardinality(chosen) - taken;
        wanted := wanted - taken;
        EXIT WHEN wanted <= 0 OR aside >= 1000 OR (max_cost IS NOT NULL AND taken > 0);
    END LOOP;
END $$;

-- As in 0004_take. A moment that is none is far away.
CREATE OR REPLACE FUNCTION look(
    at bigint, queues text[], careful boolean,
    OUT takable boolean, OUT moment bigint, OUT next bigint, OUT closed boolean
) LANGUAGE plpgsql AS $$
BEGIN
    moment := present(at);
    SELECT coalesce(bool_or(NOT s.shut AND (s.ready OR s.soonest <= moment)), false),
           min(CASE WHEN s.shut THEN s.reopens WHEN s.soonest IS NOT NULL THEN as_moment(s.soonest) END),
           coalesce(bool_or(s.shut), false)
    INTO takable, next, closed
    FROM (
        SELECT coalesce(p.paused AND coalesce(p.paused_until > moment, true), false) AS shut, p.paused_until AS reopens,
               CASE WHEN careful THEN first_free(u.queue, 0) IS NOT NULL
                    ELSE (SELECT id FROM jobs WHERE queue = u.queue AND state = 0 ORDER BY sort, id LIMIT 1) IS NOT NULL
               END AS ready,
               CASE WHEN careful THEN least(first_free(u.queue, 1), first_free(u.queue, 2))
                    ELSE least((SELECT sort FROM jobs WHERE queue = u.queue AND state = 1 ORDER BY sort LIMIT 1),
                               (SELECT sort FROM jobs WHERE queue = u.queue AND state = 2 ORDER BY sort LIMIT 1))
               END AS soonest
        FROM unnest(queues) AS u(queue) LEFT JOIN pauses p ON p.queue = u.queue
    ) s;
END $$;

-- A moment from a column that may hold what is none: NaN is above all numbers.
CREATE FUNCTION as_moment(sort double precision) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(0, least(sort, 18014398509481984))::bigint
$$;
