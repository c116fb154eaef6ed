-- purge: delete jobs of a queue in a state, at most so many: ended ones by their end, before a moment, others by id,
-- created before it. NULL: all. Ids grow with time: of those that wait, the first by id are the oldest, so no others
-- need be looked at. A job that is locked is being changed by another call, and is passed over; only where all are to go
-- it is waited for. Those that report and were not done or cancelled are reported as removed. Answer: how many.
CREATE FUNCTION purge(at bigint, q text, which smallint, before bigint, most bigint)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    ids    bigint[];
    moment bigint;
    told   report[];
    gone   record;
    due    record := apply_due(q, present(at));
BEGIN
    PERFORM forget_cancelled(q, present(at));
    IF which = 2 THEN
        ids := ARRAY(
            SELECT t.id FROM (SELECT * FROM jobs j WHERE j.queue = q AND j.state = 2 OFFSET 0) t
            WHERE coalesce(t.created_at < before, true) ORDER BY t.id LIMIT most
        );
        PERFORM lock_jobs(ids, true);
        ids := ARRAY(SELECT j.id FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = 2);
    ELSIF before IS NULL AND most IS NULL THEN
        -- Locked here, so that each is still in that state when it is deleted.
        ids := ARRAY(
            SELECT j.id FROM jobs j
            WHERE (j.queue, j.state, j.id) >= (q, which, 0) AND (j.queue, j.state) <= (q, which) AND j.state + 0 <> 2
            ORDER BY j.queue, j.state, j.id FOR UPDATE
        );
    ELSIF which = 3 THEN
        ids := ARRAY(
            SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = 3 AND j.sort < coalesce(before, 'Infinity'::float8)
            ORDER BY j.sort, j.id LIMIT most FOR UPDATE SKIP LOCKED
        );
    ELSIF which >= 4 THEN
        ids := ARRAY(
            SELECT j.id FROM jobs j
            WHERE j.queue = q AND j.state = which AND j.state + 0 >= 4 AND j.ended_at < coalesce(before, 9223372036854775807)
            ORDER BY j.ended_at, j.id LIMIT most FOR UPDATE SKIP LOCKED
        );
    ELSE
        ids := ARRAY(
            SELECT t.id FROM (
                SELECT j.id, j.created_at FROM jobs j
                WHERE (j.queue, j.state, j.id) >= (q, which, 0) AND (j.queue, j.state) <= (q, which) AND j.state + 0 <> 2
                ORDER BY j.queue, j.state, j.id LIMIT most FOR UPDATE SKIP LOCKED
            ) t WHERE coalesce(t.created_at < before, true)
        );
    END IF;
    moment := present(at);
    IF which < 4 THEN
        told := ARRAY(
            SELECT report('removed', j.id, j.attempts, moment, j.key, j.reports_to)
            FROM unnest(ids) WITH ORDINALITY u(id, place), LATERAL (
                SELECT * FROM jobs r WHERE r.id = u.id AND r.reports_to IS NOT NULL OFFSET 0
            ) j ORDER BY u.place
        );
    END IF;
    gone := delete_jobs(ids);
    PERFORM store_reports(moment, told);
    due.touched := due.touched || gone.touched;
    IF due.touched IS NOT NULL THEN
        PERFORM notify_queues(balance(due.touched));
    END IF;
    RETURN gone.removed;
END $$;
