-- wait: look whether something may be taken from one of the queues. Changes nothing. Answer:
--   takable   whether
--   due_in    in how many ms, to a fraction and by the server's clock, the next moment comes at which that may change;
--             NULL: none is known
--   starts    whether that is the start of a job, unless something happens to it. (A lease that ends at that moment will
--             mostly have been settled by then.)
--   paused    whether one of the queues is, or has rules for its lanes: then news of a ready job tell nothing until it is
--             looked for, since the job may be held
-- Of the other queues of a group (see lanes.sql), what is due there counts: it may let a job of this queue in.
-- A queue whose Lanes.total jobs are taken sleeps until a lease ends: room then comes by a notification.
CREATE FUNCTION wait(
    at bigint, queues text[], OUT takable boolean, OUT due_in double precision, OUT starts boolean, OUT paused boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    exact    double precision := coalesce(at::double precision, extract(epoch FROM clock_timestamp()) * 1000);
    moment   bigint := floor(exact);
    start_in double precision;
BEGIN
    SELECT coalesce(bool_or(NOT s.shut AND (s.ready OR least(s.start, s.lease_end, s.elsewhere) <= moment)), false),
           min(CASE WHEN s.shut THEN nullif(s.until, 9223372036854775807) ELSE least(s.start, s.lease_end, s.elsewhere) END)
           - exact,
           min(s.start) FILTER (WHERE NOT s.shut) - exact, coalesce(bool_or(s.shut OR s.ruled), false)
    INTO takable, due_in, start_in, paused
    FROM (
        SELECT p.until, coalesce(p.until > moment, false) AS shut, r.queue IS NOT NULL AS ruled,
               NOT g.is_full AND (
                   (SELECT id FROM jobs WHERE queue = u.queue AND state = 0 ORDER BY sort, id LIMIT 1) IS NOT NULL
                   OR (SELECT id FROM unbalanced WHERE queue = u.queue ORDER BY id LIMIT 1) IS NOT NULL
               ) AS ready,
               CASE WHEN NOT g.is_full THEN
                   (SELECT sort FROM jobs WHERE queue = u.queue AND state = 1 ORDER BY sort, id LIMIT 1)
               END AS start,
               (SELECT sort FROM jobs WHERE queue = u.queue AND state = 2 ORDER BY sort, id LIMIT 1) AS lease_end,
               CASE WHEN r.shared IS NOT NULL AND NOT g.is_full THEN first_elsewhere(u.queue, r.shared) END AS elsewhere
        FROM unnest(queues) AS u(queue) LEFT JOIN pauses p ON p.queue = u.queue
        LEFT JOIN lane_rules r ON r.queue = u.queue CROSS JOIN LATERAL (
            SELECT coalesce(r.total <= (
                SELECT count(*) FROM (SELECT FROM jobs WHERE queue = u.queue AND state = 2 LIMIT r.total) taken
            ), false) AS is_full OFFSET 0
        ) g
    ) s;
    starts := NOT takable AND coalesce(start_in <= due_in, false);
END $$;

-- The first moment at which something is due in the other queues of a group: 0 where lanes are to be balanced.
CREATE FUNCTION first_elsewhere(q text, group_name text) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT least(min(m.start), min(m.lease_end), min(m.unbalanced)) FROM lane_rules o, LATERAL (
            SELECT (SELECT sort FROM jobs WHERE queue = o.queue AND state = 1 ORDER BY sort, id LIMIT 1) AS start,
                   (SELECT sort FROM jobs WHERE queue = o.queue AND state = 2 ORDER BY sort, id LIMIT 1) AS lease_end,
                   (SELECT 0 FROM unbalanced WHERE queue = o.queue ORDER BY id LIMIT 1) AS unbalanced OFFSET 0
        ) m WHERE o.shared = group_name AND o.queue <> q
    );
END $$;

-- notify: tell every process that listens that these queues may have something new. It need not survive a power cut, so
-- its commit does not wait for the disk.
CREATE FUNCTION notify(news text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM notify_queues(news);
END $$;
