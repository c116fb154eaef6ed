-- take: lease up to `most` ready jobs of a queue for `lease` ms to the worker `who`, in order, after applying what is due.
-- With `max_cost` their summed cost stays within it. Answer: the jobs, in order.
--
-- A job is never leased twice: a row is locked before it is changed, and under READ COMMITTED a row that another call
-- changed after our look is looked at again once the lock is ours (state = 0 must still hold). SKIP LOCKED passes over
-- rows that another taker is taking.

CREATE TYPE taken_job AS (
    id job_id, data bytea, rank finite, cost moment, key text, attempts counter, created_at moment, start_time moment,
    prev_start_time moment, waiters counter, tries counter, crashes counter, taken_at moment, lane lane_name
);

CREATE FUNCTION take(at bigint, q text, most bigint, lease bigint, max_cost bigint, who text)
RETURNS SETOF taken_job LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    moment  bigint := present(at);
    touched text[];
    room    bigint;
    chosen  tid[];  -- stay valid: locked rows do not move
BEGIN
    touched := apply_group_due(q, moment);
    IF touched IS NOT NULL THEN
        PERFORM balance(touched);  -- who waits for another queue of the group wakes at the same moment, see wait.sql
    END IF;
    room := room_in(q, moment);
    IF room > 0 THEN
        -- Two takes must not both count the same job as the last below the total: they come one after the other, until
        -- their commit. What ends a run needs no lock, it makes room. One who holds this lock waits for no other.
        PERFORM lock_total(q);
        room := room_in(q, moment);
    END IF;
    IF room <= 0 THEN
        RETURN;
    END IF;
    most := least(most, room);
    IF max_cost IS NULL THEN
        chosen := ARRAY(
            SELECT j.ctid FROM jobs j WHERE j.queue = q AND j.state = 0
            ORDER BY j.sort, j.id LIMIT most FOR UPDATE SKIP LOCKED
        );
    ELSE
        chosen := afford(q, most, max_cost);
    END IF;
    IF cardinality(chosen) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
        WITH leased AS (
            UPDATE jobs j SET state = 2, sort = moment + lease, worker = who, taken_at = moment
            WHERE j.ctid = ANY (chosen)
            RETURNING j.id, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time, j.prev_start_time,
                      j.waiters, j.tries, j.crashes, j.taken_at, j.lane,
                      -- Its turn: the statement's own changes are not in its snapshot.
                      CASE WHEN j.lane IS NULL THEN j.rank ELSE (SELECT o.sort FROM jobs o WHERE o.id = j.id) END AS place
        )
        SELECT l.id, l.data, l.rank, l.cost, l.key, l.attempts, l.created_at, l.start_time, l.prev_start_time, l.waiters,
               l.tries, l.crashes, l.taken_at, l.lane
        FROM leased l ORDER BY l.place, l.id;
    PERFORM add_counts(q, -cardinality(chosen), 0, cardinality(chosen));
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

-- give_back: undo a take whose caller is gone. The tokens were never used, so `attempts` may stay. The ids ascend. As many
-- jobs of a lane are ready or taken as before, so no lane is balanced.
CREATE FUNCTION give_back(q text, ids bigint[], runs bigint[], takes bigint[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    back bigint;
BEGIN
    UPDATE jobs j SET state = 0, sort = j.rank
    WHERE j.id = ANY (ids) AND j.queue || '' = q AND j.state + 0 = 2 AND j.attempts = runs[width_bucket(j.id, ids)]
      AND j.taken_at = takes[width_bucket(j.id, ids)];
    GET DIAGNOSTICS back = ROW_COUNT;
    IF back > 0 THEN
        PERFORM add_counts(q, back, 0, -back);
        PERFORM notify_queues(ARRAY['+' || q]);
    END IF;
END $$;
