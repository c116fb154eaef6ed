-- take and its companions.

-- A job as it is handed out.
CREATE TYPE taken_job AS (
    id bigint, data bytea, rank double precision, cost bigint, key text, attempts integer, created_at bigint,
    start_time bigint, prev_start_time bigint, waiters integer
);

-- take: lease up to `most` ready jobs of a queue for `lease` ms, in order, after applying what is due.
--
-- A job is never leased twice: a row is locked before it is changed, and under READ COMMITTED a row that another call
-- changed after our look is looked at again once the lock is ours (state = 0 must still hold). SKIP LOCKED passes over
-- rows that another taker is taking.
CREATE FUNCTION take(at bigint, q text, most bigint, lease bigint, max_cost bigint, who text)
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
            WHERE j.ctid = ANY (chosen) RETURNING j.*
        )
        SELECT l.id, l.data, l.rank, l.cost, l.key, l.attempts, l.created_at, l.start_time, l.prev_start_time, l.waiters
        FROM leased l ORDER BY l.rank, l.id;
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken > 0 THEN
        PERFORM count_up(q, -taken, 0, taken);
    END IF;
END $$;

-- Lock the ready jobs from the head on whose summed cost fits; gives their places.
-- A job that is too dear ends the search and is not locked: to another taker it would look as if it were being taken,
-- and that one would skip the head although it could pay for it.
CREATE FUNCTION afford(q text, most bigint, max_cost bigint) RETURNS tid[] LANGUAGE plpgsql AS $$
DECLARE
    chosen tid[] := '{}';
    budget bigint := max_cost;
    head   record;
    place  tid;
    price  bigint;
BEGIN
    IF most = 0 THEN
        RETURN chosen;
    END IF;
    FOR head IN SELECT j.id, j.cost FROM jobs j WHERE j.queue = q AND j.state = 0 ORDER BY j.sort, j.id LOOP
        EXIT WHEN head.cost > budget;
        SELECT j.ctid, j.cost INTO place, price FROM jobs j
        WHERE j.id = head.id AND j.state + 0 = 0 AND j.cost <= budget FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;  -- being taken by another
        chosen := chosen || place;
        budget := budget - price;
        EXIT WHEN cardinality(chosen) >= most;
    END LOOP;
    RETURN chosen;
END $$;

-- give_back: undo a take whose answer nobody received. Nobody knows the token, so it may stay. The ids ascend.
CREATE FUNCTION give_back(q text, given bigint[], tokens integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    back bigint;
BEGIN
    PERFORM lock_jobs(given);
    UPDATE jobs j SET state = 0, sort = j.rank
    WHERE j.id = ANY (given) AND j.queue || '' = q AND j.state + 0 = 2
      AND j.attempts = tokens[width_bucket(j.id, given)];
    GET DIAGNOSTICS back = ROW_COUNT;
    IF back > 0 THEN
        PERFORM count_up(q, back, 0, -back);
    END IF;
END $$;

-- look: may something be taken from one of the queues, what is the present moment, and when is the next one to look
-- again at the latest (NULL: none is known)? Is one of them paused (closed)? Changes nothing.
--
-- `careful`: pass over jobs that are locked. A job that a caller's open transaction replaces is seen as ready but cannot
-- be taken, and without this a worker would look and try again without end. It is not the rule, because the lock that it
-- needs for a moment itself makes takers pass over the job.
CREATE FUNCTION look(
    at bigint, queues text[], careful boolean,
    OUT takable boolean, OUT moment bigint, OUT next bigint, OUT closed boolean
) LANGUAGE plpgsql AS $$
BEGIN
    moment := present(at);
    SELECT coalesce(bool_or(NOT s.shut AND (s.ready OR s.soonest <= moment)), false),
           min(CASE WHEN s.shut THEN s.reopens ELSE s.soonest END), coalesce(bool_or(s.shut), false)
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

-- What orders the first job of a state that nobody has locked.
CREATE FUNCTION first_free(q text, which integer) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT sort FROM jobs WHERE queue = q AND state = which ORDER BY sort, id LIMIT 1 FOR KEY SHARE SKIP LOCKED
    );
END $$;

-- ring: tell everybody who listens that these queues may have something new. It need not survive a power cut, so its
-- commit does not wait for the disk.
CREATE FUNCTION ring(queues text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify(current_schema(), q) FROM unnest(queues) AS u(q);
END $$;
