-- stats: the counts of every queue that ever had a job or a pause, after applying a part of what is due.
-- The sums and the oldest job are read by one statement, so from one snapshot.
-- The oldest ready job is the one with the lowest id, since ids grow. Compared as rows, only jobs_by_id has this order:
-- `queue = q AND state = 0 ORDER BY id` looks to the planner as if the primary key would soon come to one, and that is a
-- walk through the whole table where nearly all jobs wait in another queue.
CREATE FUNCTION stats(
    at bigint, OUT moment bigint, OUT queue text, OUT ready bigint, OUT taken bigint, OUT delayed bigint, OUT dead bigint,
    OUT done bigint, OUT retried bigint, OUT buried bigint, OUT expired bigint, OUT cancelled bigint,
    OUT promoted bigint, OUT paused_until bigint, OUT oldest moment, OUT held bigint
) RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    instant bigint := present(at);
    unspent bigint := 1000;
    known   text[] := ARRAY(SELECT c.queue FROM counts c UNION SELECT p.queue FROM pauses p ORDER BY 1);
    touched text[];
    due     record;
    q       text;
BEGIN
    FOREACH q IN ARRAY known LOOP
        due := apply_due(q, instant, unspent);
        touched := touched || due.touched;
        unspent := unspent - due.spent;
        unspent := unspent - forget_cancelled(q, instant, unspent);
        EXIT WHEN unspent <= 0;
    END LOOP;
    IF touched IS NOT NULL THEN
        PERFORM balance(touched);
    END IF;
    RETURN QUERY
        SELECT instant, u.name, c.ready, c.taken, c.delayed, c.dead, c.done, c.retried, c.buried, c.expired, c.cancelled,
               c.promoted,
               (SELECT p.until FROM pauses p WHERE p.queue = u.name AND p.until > instant),
               (SELECT j.created_at FROM jobs j
                WHERE (j.queue, j.state, j.id) >= (u.name, 0::smallint, 0) AND (j.queue, j.state) <= (u.name, 0::smallint)
                  AND j.state + 0 <> 2
                ORDER BY j.queue, j.state, j.id LIMIT 1),
               c.held
        FROM unnest(known) AS u(name), LATERAL (
            SELECT coalesce(sum(ready), 0)::bigint AS ready, coalesce(sum(taken), 0)::bigint AS taken,
                   coalesce(sum(delayed), 0)::bigint AS delayed, coalesce(sum(dead), 0)::bigint AS dead,
                   coalesce(sum(done), 0)::bigint AS done, coalesce(sum(retried), 0)::bigint AS retried,
                   coalesce(sum(buried), 0)::bigint AS buried, coalesce(sum(expired), 0)::bigint AS expired,
                   coalesce(sum(cancelled), 0)::bigint AS cancelled, coalesce(sum(promoted), 0)::bigint AS promoted,
                   coalesce(sum(held), 0)::bigint AS held
            FROM counts WHERE queue = u.name
        ) c;
END $$;
