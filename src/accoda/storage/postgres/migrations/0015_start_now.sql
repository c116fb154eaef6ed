-- One verb: delayed jobs are ready now. Nothing that is there changes, so calls of the version before go on.

-- start_now: make delayed jobs ready now, whatever they wait for. Answer: the queue of each that was made so.
-- Only those that are delayed are locked: others may be ready, and a take at the same moment must not pass over them.
-- The locks come first, in the order of the ids as everywhere, then the moment. Only what is locked is changed, so this
-- waits for no lock while it holds others out of that order.
CREATE FUNCTION start_now(at bigint, ids bigint[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    delayed bigint[] := ARRAY(
        SELECT j.id FROM (SELECT DISTINCT unnest(ids) AS id ORDER BY id) wanted,
               LATERAL (SELECT r.id FROM jobs r WHERE r.id = wanted.id AND r.state + 0 = 1 FOR UPDATE) j
    );
    moment  bigint := present(at);
    started text[];
    part    record;
BEGIN
    PERFORM apply_own_due(moment, ids);
    PERFORM mend(moment, ids);
    WITH moved AS (
        UPDATE jobs j SET state = 0, sort = j.rank, start_time = moment
        WHERE j.id = ANY (delayed) AND j.state + 0 = 1 RETURNING j.queue
    )
    SELECT coalesce(array_agg(m.queue), '{}') INTO started FROM moved m;
    FOR part IN SELECT u.queue, count(*) AS jobs FROM unnest(started) AS u(queue) GROUP BY u.queue ORDER BY u.queue LOOP
        PERFORM count_up(part.queue, part.jobs, -part.jobs, 0);
    END LOOP;
    RETURN started;
END $$;

-- Settings as in 0007_settings.
ALTER FUNCTION start_now(bigint, bigint[]) SECURITY DEFINER;
ALTER FUNCTION start_now(bigint, bigint[]) SET search_path FROM CURRENT;
ALTER FUNCTION start_now(bigint, bigint[]) SET enable_seqscan = off;
ALTER FUNCTION start_now(bigint, bigint[]) SET enable_bitmapscan = off;
ALTER FUNCTION start_now(bigint, bigint[]) SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION start_now(bigint, bigint[]) SET jit = off;
