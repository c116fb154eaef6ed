-- change: apply each change that fits its job, in order. Answer: how many were applied.
-- The jobs are locked first, then judged. A call that attaches a waiter locks the job too, so that waiter is counted here,
-- or the call finds the job gone and creates another. Only jobs that a change can apply to are locked: a take at the same
-- moment passes over those. A removal, a revival and a cancellation are reported to the job's flow, if it has one.

CREATE TYPE change AS (
    kind    smallint,         -- 0 remove, 1 revive, 2 start now, 3 rerank, 4 not crashed, 5 cancel
    id      bigint,
    waiters bigint,           -- how many were seen; NULL: do not check
    queue   text,             -- where it must be; NULL: wherever it is
    rank    double precision  -- the new one
);

CREATE FUNCTION change(at bigint, changes change[])
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    moment  bigint;
    applied bigint := 0;
    news    text[] := '{}';
    told    report[];
    touched text[];  -- of one change
    c       change;
    j       jobs;
BEGIN
    PERFORM lock_jobs(
        ARRAY(
            SELECT fit.id
            FROM (SELECT u.id, array_agg(u.kind) AS kinds FROM unnest(changes) u GROUP BY u.id) wanted, LATERAL (
                SELECT l.id FROM jobs l
                WHERE l.id = wanted.id AND (l.state + 0 IN (1, 2) OR wanted.kinds && CASE l.state
                    WHEN 0 THEN '{0, 3, 4, 5}' WHEN -1 THEN '{0, 3, 4, 5}' WHEN 3 THEN '{0, 1}' ELSE '{0}' END::smallint[])
                OFFSET 0
            ) fit
        ),
        EXISTS (SELECT FROM unnest(changes) u WHERE u.kind IN (0, 1, 5))
    );
    moment := present(at);
    FOR c IN SELECT DISTINCT ON (u.id) u.* FROM unnest(changes) u ORDER BY u.id LOOP
        touched := touched || apply_own_due(moment, c.id);
    END LOOP;
    -- All lanes are locked at once, in their order: to balance after each change then waits for none.
    touched := touched || ARRAY(
        SELECT named.queue || '/' || named.lane FROM unnest(changes) u, LATERAL (
            SELECT l.queue, l.lane FROM jobs l WHERE l.id = u.id AND l.lane IS NOT NULL OFFSET 0
        ) named
    );
    IF cardinality(touched) > 0 THEN
        news := balance(touched);
    END IF;
    FOREACH c IN ARRAY changes LOOP
        touched := NULL;
        SELECT * INTO j FROM jobs r WHERE r.id = c.id;
        CONTINUE WHEN NOT FOUND OR j.queue <> c.queue OR j.waiters > c.waiters;
        CASE
            WHEN c.kind = 0 AND (j.state < 3 OR c.waiters IS NULL) THEN
                touched := (delete_jobs(ARRAY[c.id])).touched;
                IF j.state < 4 AND j.reports_to IS NOT NULL THEN  -- else its end was reported
                    told := told || report('removed', j.id, j.attempts, moment, j.key, j.reports_to);
                END IF;
            WHEN c.kind = 1 AND j.state = 3 THEN
                CONTINUE WHEN NOT revive_job(moment, j);
                news := news || ('+' || j.queue);
                IF j.reports_to IS NOT NULL THEN
                    told := told || report('revived', j.id, j.attempts + 1, moment, j.key, j.reports_to);
                END IF;
            WHEN c.kind = 2 AND j.state = 1 THEN
                PERFORM start_now(moment, j);
                news := news || ('+' || j.queue);
            WHEN c.kind = 3 AND j.state < 2 THEN
                PERFORM rerank_job(j, c.rank);
            WHEN c.kind = 4 AND j.state < 3 AND j.crashes > 0 THEN
                UPDATE jobs r SET crashes = r.crashes - 1 WHERE r.id = c.id;
            WHEN c.kind = 5 AND j.state < 3 THEN
                PERFORM cancel_job(moment, j);
                touched := (SELECT ARRAY[r.queue || '/'] FROM lane_rules r WHERE r.queue = j.queue AND r.total IS NOT NULL);
                IF j.reports_to IS NOT NULL THEN
                    told := told || report('cancelled', j.id, j.attempts, moment, j.key, j.reports_to);
                END IF;
            ELSE
                CONTINUE;
        END CASE;
        applied := applied + 1;
        IF j.lane IS NOT NULL THEN
            touched := touched || (j.queue || '/' || j.lane);
        END IF;
        IF touched IS NOT NULL THEN
            news := news || balance(touched);
        END IF;
    END LOOP;
    PERFORM store_reports(moment, told);
    PERFORM notify_queues(ARRAY(SELECT DISTINCT unnest(news)));
    RETURN applied;
END $$;

-- End a locked job as cancelled. It goes at once if it is not to be kept; one that runs stays for at least 60 s
-- (CANCELLED_FOR in accoda/model.py), so that its worker is told.
CREATE FUNCTION cancel_job(moment bigint, j jobs) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    kept duration := CASE j.state WHEN 2 THEN greatest(j.keep_for, 60) ELSE j.keep_for END;
BEGIN
    IF kept = 0 THEN
        DELETE FROM waiters WHERE job = j.id;
        DELETE FROM jobs r WHERE r.id = j.id;
    ELSE
        UPDATE jobs r SET state = 5, sort = moment + round(kept * 1000), keep_for = kept, ended_at = moment WHERE r.id = j.id;
    END IF;
    PERFORM add_counts(j.queue, -(j.state = 0)::int, -(j.state = 1)::int, -(j.state = 2)::int, d_cancelled => 1,
                       d_held => -(j.state = -1)::int);
END $$;

-- Start a locked job that is delayed.
CREATE FUNCTION start_now(moment bigint, j jobs) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    entry job_state := CASE WHEN j.lane IS NULL THEN 0 ELSE entry_state(j.queue) END;
BEGIN
    UPDATE jobs r SET state = entry, sort = r.rank, start_time = moment WHERE r.id = j.id;
    PERFORM add_counts(j.queue, 1 + entry, -1, 0, d_held => -entry);
END $$;

-- Make a dead job ready again. Answer: whether it is. Where another job holds its key it stays dead: the unique index
-- decides, also against one that is being enqueued at this moment.
CREATE FUNCTION revive_job(moment bigint, j jobs) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entry job_state := CASE WHEN j.lane IS NULL THEN 0 ELSE entry_state(j.queue) END;
BEGIN
    UPDATE jobs r
    SET state = entry, sort = r.rank, attempts = r.attempts + 1, tries = 0, crashes = 0, prev_start_time = r.start_time,
        start_time = moment, ended_at = NULL
    WHERE r.id = j.id;
    PERFORM add_counts(j.queue, 1 + entry, 0, 0, -1, d_held => -entry);
    RETURN true;
EXCEPTION WHEN unique_violation THEN
    RETURN false;
END $$;
