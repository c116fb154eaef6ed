-- look: one job and what is asked about it, without taking it, after applying what is due.
--   by_id | q, by_key | q   the job: with this id; that holds the key; at the head of the line (none if no job may be taken)
--   seen                    its waiters after the first `seen`; NULL: none are asked for
--   with_ahead              how many ready jobs go before it, counted up to 10,001, and how many of the first 10,000 of
--                           them have a higher id
-- Answer: the moment; the job, NULL if there is none; its waiters; those two counts.
--
-- It locks nothing and, where nothing is due, writes nothing: a take at the same moment must not pass over the job.
-- All is read by one statement, so from one snapshot. Waiters are numbered from 1 without a gap, so the rest of them is a
-- range of the primary key.
CREATE FUNCTION look(
    at bigint, by_id bigint, q text, by_key text, seen bigint, with_ahead boolean,
    OUT moment bigint, OUT job job_info, OUT joined bytea[], OUT ahead integer, OUT newer integer
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    line    text := coalesce(q, (SELECT j.queue FROM jobs j WHERE j.id = by_id));
    head    text;
    found   record;
    touched text[];
BEGIN
    moment := present(at);
    touched := (apply_due(line, moment)).touched;
    IF by_id IS NOT NULL THEN
        touched := touched || apply_own_due(moment, by_id);
    ELSIF by_key IS NOT NULL THEN
        touched := touched || (
            SELECT apply_own_due(moment, j.id) FROM jobs j WHERE j.queue || '' = q AND j.key = by_key AND j.state < 3
        );
    END IF;
    IF touched IS NOT NULL THEN
        PERFORM balance(touched);
    END IF;
    IF by_id IS NULL AND by_key IS NULL AND coalesce(room_in(q, moment), 1) > 0 THEN
        head := q;
    END IF;
    SELECT d AS info, CASE WHEN j.waiters > seen THEN
                  ARRAY(SELECT w.data FROM waiters w WHERE w.job = j.id AND w.n > seen ORDER BY w.n)
              END AS joined, CASE WHEN with_ahead AND j.state IN (0, 1) THEN a.ahead END AS ahead, a.newer
    INTO found
    FROM (
        SELECT * FROM jobs r WHERE r.id = by_id
        UNION ALL
        SELECT * FROM (SELECT * FROM jobs r WHERE r.queue || '' = q AND r.key = by_key AND r.state < 3 OFFSET 0) holder
        UNION ALL
        SELECT * FROM (SELECT * FROM jobs r WHERE r.queue = head AND r.state = 0 ORDER BY r.sort, r.id LIMIT 1) first
    ) j
    CROSS JOIN LATERAL describe(j::jobs) d
    CROSS JOIN LATERAL (
        SELECT count(*) AS ahead, count(*) FILTER (WHERE e.id > j.id AND e.place <= 10000) AS newer
        FROM (
            SELECT r.id, row_number() OVER () AS place FROM (
                SELECT r.id FROM jobs r
                WHERE with_ahead AND j.state IN (0, 1) AND r.queue = j.queue AND r.state = 0
                  AND (r.sort, r.id) < (CASE j.state WHEN 0 THEN j.sort ELSE j.rank END, j.id)
                ORDER BY r.sort, r.id LIMIT 10001
            ) r
        ) e
    ) a;
    job := found.info;
    joined := found.joined;
    ahead := found.ahead;
    newer := found.newer;
END $$;
