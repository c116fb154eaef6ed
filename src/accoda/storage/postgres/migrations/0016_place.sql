-- One verb: where a job stands in the line of its queue. Nothing that is there changes, so calls of the version before go on.

-- place: the job, how many ready ones are ahead of it, of which `newer` have a higher id, both counted up to `most` and
-- one more. Where there are so many: how many are behind it, counted as far, how many are ready in all, the lowest ranks,
-- up to 65 of them, and the highest. job is NULL if there is none. A job that does not wait has nobody ahead.
CREATE FUNCTION place(
    at bigint, job_id bigint, most bigint, OUT moment bigint, OUT job job_info, OUT ahead bigint, OUT newer bigint,
    OUT behind bigint, OUT ready bigint, OUT ranks double precision[], OUT last_rank double precision
) LANGUAGE plpgsql AS $$
DECLARE
    seen record;
BEGIN
    moment := present(at);
    PERFORM apply_due(j.queue, moment, 1000) FROM jobs j WHERE j.id = job_id;
    PERFORM apply_own_due(moment, ARRAY[job_id]);  -- however much else is due
    PERFORM mend(moment, ARRAY[job_id]);
    SELECT s.* INTO seen FROM stand(job_id, most) s;
    job := seen.job;
    ahead := seen.ahead;
    newer := seen.newer;
    behind := seen.behind;
    ready := seen.ready;
    ranks := seen.ranks;
    last_rank := seen.last_rank;
END $$;

-- The look itself. STABLE: all its statements see the snapshot of the one that calls it, so the job, the line and the
-- counts are of one moment.
CREATE FUNCTION stand(
    job_id bigint, most bigint, OUT job job_info, OUT ahead bigint, OUT newer bigint, OUT behind bigint,
    OUT ready bigint, OUT ranks double precision[], OUT last_rank double precision
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    shown record;
    q     text;
    own   double precision;
    lane  double precision;
BEGIN
    SELECT d AS info, j.queue, j.rank, j.state INTO shown
    FROM jobs j, describe(j) d WHERE j.id = job_id AND j.state BETWEEN 0 AND 4;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    job := shown.info;
    q := shown.queue;
    own := shown.rank;
    ahead := 0;
    newer := 0;
    IF shown.state > 1 THEN
        RETURN;
    END IF;
    SELECT count(*), count(*) FILTER (WHERE e.id > job_id) INTO ahead, newer FROM (
        SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = 0 AND (j.sort, j.id) < (own, job_id)
        ORDER BY j.sort DESC, j.id DESC LIMIT most + 1
    ) e;
    IF ahead <= most THEN
        RETURN;
    END IF;
    behind := (SELECT count(*) FROM (
        SELECT FROM jobs j WHERE j.queue = q AND j.state = 0 AND (j.sort, j.id) > (own, job_id)
        ORDER BY j.sort, j.id LIMIT most + 1
    ) e);
    ready := (SELECT coalesce(sum(c.ready), 0) FROM counts c WHERE c.queue = q);
    last_rank := (SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 0 ORDER BY j.sort DESC, j.id DESC LIMIT 1);
    lane := (SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 0 ORDER BY j.sort, j.id LIMIT 1);
    -- Each rank is found behind the one before: as many looks as there are ranks, however many jobs have them.
    FOR tries IN 1 .. 65 LOOP
        EXIT WHEN lane IS NULL;
        ranks := ranks || lane;
        lane := next_rank(q, lane);
    END LOOP;
END $$;

CREATE FUNCTION next_rank(q text, lane double precision) RETURNS double precision LANGUAGE sql STABLE AS $$
    SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 0 AND j.sort > lane ORDER BY j.sort, j.id LIMIT 1
$$;

-- stretches: the looks of accoda/storage/density.py, one row for each: up to `most` ready jobs from the place (rank, id)
-- on or, where `down`, before it, backwards; the last id of the last one's rank, in that direction; the rank after that.
CREATE FUNCTION stretches(
    q text, places double precision[], ids bigint[], most integer[], down boolean[],
    OUT sorts double precision[], OUT members bigint[], OUT far bigint, OUT beyond double precision
) RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
DECLARE
    lane double precision;
BEGIN
    FOR n IN 1 .. cardinality(places) LOOP
        IF down[n] THEN
            SELECT array_agg(e.sort), array_agg(e.id) INTO sorts, members FROM (
                SELECT j.sort, j.id FROM jobs j
                WHERE j.queue = q AND j.state = 0 AND (j.sort, j.id) < (places[n], ids[n])
                ORDER BY j.sort DESC, j.id DESC LIMIT most[n]
            ) e;
            lane := sorts[cardinality(sorts)];
            far := (SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = 0 AND j.sort = lane ORDER BY j.id LIMIT 1);
            beyond := (
                SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 0 AND j.sort < lane
                ORDER BY j.sort DESC, j.id DESC LIMIT 1
            );
        ELSE
            SELECT array_agg(e.sort), array_agg(e.id) INTO sorts, members FROM (
                SELECT j.sort, j.id FROM jobs j
                WHERE j.queue = q AND j.state = 0 AND (j.sort, j.id) >= (places[n], ids[n])
                ORDER BY j.sort, j.id LIMIT most[n]
            ) e;
            lane := sorts[cardinality(sorts)];
            far := (
                SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = 0 AND j.sort = lane ORDER BY j.id DESC LIMIT 1
            );
            beyond := next_rank(q, lane);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Settings as in 0007_settings; both read a line in the order of an index.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN ('place', 'stretches')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', verb);
        EXECUTE format('ALTER FUNCTION %s SET search_path FROM CURRENT', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', verb);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', verb);
    END LOOP;
END $$;
