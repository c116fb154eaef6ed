-- extend: make each current lease end `lease` ms from now. `ids, runs, takes, queues`: the leases, as for settle.
-- Answer: the places of those that are lost, and for each of them why, as the verdicts of settle. Where an end comes
-- nearer, waiting callers are woken.
--
-- Fencing: as in settle.sql. `IS TRUE` keeps the planner from making a join of the membership.
CREATE FUNCTION extend(
    at bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], lease bigint,
    OUT lost bigint[], OUT verdicts smallint[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    moment bigint := present(at);
    nearer text[] := ARRAY(
        SELECT DISTINCT unnest(group_of(j.queue)) FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = 2 AND j.sort > moment + lease
    );
BEGIN
    IF 'accoda.flows' = ANY (queues) THEN
        PERFORM lock_jobs(ids);  -- one statement would lock flows before jobs of a higher id that report to them
    END IF;
    WITH extended AS (
        UPDATE jobs j SET sort = moment + lease
        WHERE j.id = ANY (ids) AND j.state + 0 = 2 AND j.sort > moment
          AND (j.id, j.attempts, j.taken_at, j.queue) IN (SELECT * FROM unnest(ids, runs, takes, queues)) IS TRUE
        RETURNING j.id, j.attempts, j.taken_at, j.queue
    )
    SELECT array_agg(n ORDER BY n) INTO lost FROM generate_subscripts(ids, 1) n
    WHERE (ids[n], runs[n], takes[n], queues[n]) NOT IN (SELECT e.id, e.attempts, e.taken_at, e.queue FROM extended e);
    PERFORM notify_queues(nearer);
    verdicts := ARRAY(
        SELECT why_refused(moment, ids[n], runs[n], takes[n], queues[n])
        FROM unnest(lost) WITH ORDINALITY u(n, place) ORDER BY place
    );
END $$;
