-- browse: a page of the jobs of a queue in a state (`which`), after applying what is due.
--   by_id                  whether by id, else in the order of the line: ready jobs as take hands them out, held ones by
--                          rank, delayed and taken ones by the moment at which they come back to it, ended ones latest end first
--   after_sort, after_id   the last job of the page before; NULL: the first page
-- The cursor may be that of a job in another state, whose rank may be no moment. Compared as rows, only the index that has this order can give it: see stats.sql. Taken jobs are in no index by id: they
-- are few, so they are sorted.
CREATE FUNCTION browse(
    at bigint, q text, which smallint, by_id boolean, after_sort double precision, after_id bigint, most bigint
) RETURNS SETOF job_info LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    touched text[] := (apply_due(q, present(at))).touched;
BEGIN
    IF touched IS NOT NULL THEN
        PERFORM balance(touched);
    END IF;
    PERFORM forget_cancelled(q, present(at));
    IF by_id AND which = 2 THEN
        RETURN QUERY SELECT d.* FROM (
            SELECT t.* FROM (SELECT * FROM jobs j WHERE j.queue = q AND j.state = 2 OFFSET 0) t
            WHERE t.id > coalesce(after_id, 0) ORDER BY t.id LIMIT most
        ) j, describe(j::jobs) d;
    ELSIF by_id THEN
        RETURN QUERY SELECT d.* FROM (
            SELECT * FROM jobs j
            WHERE (j.queue, j.state, j.id) > (q, which, coalesce(after_id, 0)) AND (j.queue, j.state) <= (q, which)
              AND j.state + 0 <> 2
            ORDER BY j.queue, j.state, j.id LIMIT most
        ) j, describe(j::jobs) d;
    ELSIF which < 3 THEN
        RETURN QUERY SELECT d.* FROM (
            SELECT * FROM jobs j
            WHERE (j.queue, j.state, j.sort, j.id) > (q, which, coalesce(after_sort, '-Infinity'), coalesce(after_id, 0))
              AND (j.queue, j.state) <= (q, which)
            ORDER BY j.queue, j.state, j.sort, j.id LIMIT most
        ) j, describe(j::jobs) d;
    ELSIF which = 3 THEN
        RETURN QUERY SELECT d.* FROM (
            SELECT * FROM jobs j
            WHERE (j.queue, j.state, j.sort, j.id) < (q, which, coalesce(after_sort, 'Infinity'), coalesce(after_id, 0))
              AND (j.queue, j.state) >= (q, which)
            ORDER BY j.queue DESC, j.state DESC, j.sort DESC, j.id DESC LIMIT most
        ) j, describe(j::jobs) d;
    ELSE
        RETURN QUERY SELECT d.* FROM (
            SELECT * FROM jobs j
            WHERE (j.queue, j.state, j.ended_at, j.id)
                  < (q, which, greatest(-1, least(after_sort, 9e18))::bigint, coalesce(after_id, 0))
              AND (j.queue, j.state) >= (q, which) AND j.state + 0 >= 4
            ORDER BY j.queue DESC, j.state DESC, j.ended_at DESC, j.id DESC LIMIT most
        ) j, describe(j::jobs) d;
    END IF;
END $$;
