-- The usual calls with less to do for each. Nothing that is there changes its name or arguments, so calls of the version
-- before go on.

-- enqueue_one: store one job that has no key and is ready now. Answer: its id. `news`: a notification that the commit
-- sends, or NULL. What enqueue does, without the arrays: it is the whole way from an idle producer to an idle worker.
CREATE FUNCTION enqueue_one(
    at bigint, q text, content bytea, its_rank double precision, its_cost bigint, its_keep double precision, news text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
    made   bigint := nextval('job_ids');
BEGIN
    INSERT INTO jobs (id, queue, state, sort, rank, cost, created_at, start_time, keep_for, data)
    VALUES (made, q, 0, its_rank, its_rank, its_cost, moment, moment, its_keep, content);
    PERFORM count_up(q, 1, 0, 0);
    IF news IS NOT NULL THEN
        PERFORM pg_notify(current_schema(), news);
    END IF;
    RETURN made;
END $$;

-- finish_plain: the first step of finish, for single jobs of several callers: those of the jobs that have no key and are
-- not kept. Answer: the ids of those that it settled; the others are left as they were, for finish. So it waits for no
-- lock that lasts: a job without a key is never locked by a caller's own transaction. The ids ascend.
CREATE FUNCTION finish_plain(at bigint, q text, ids bigint[], tokens bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := present(at);
    gone   bigint[];
BEGIN
    WITH deleted AS (
        DELETE FROM jobs j
        WHERE j.id = ANY (ids) AND j.attempts = tokens[width_bucket(j.id, ids)] AND j.queue || '' = q
          AND j.state + 0 = 2 AND j.sort > moment AND j.key IS NULL AND j.keep_for = 0
        RETURNING j.id
    )
    SELECT array_agg(d.id) INTO gone FROM deleted d;
    IF cardinality(gone) > 0 THEN
        PERFORM count_up(q, 0, 0, -cardinality(gone), d_done => cardinality(gone));
    END IF;
    RETURN coalesce(gone, '{}');
END $$;

-- As in 0010_bounds. Whether something is due and whether the queue is paused is seen by one statement.
CREATE OR REPLACE FUNCTION take(at bigint, q text, most bigint, lease bigint, max_cost bigint, who text)
RETURNS SETOF taken_job LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
    wanted bigint := most;
    aside  bigint := 0;
    chosen tid[];  -- stay valid: the rows are locked, so nobody moves them
    taken  bigint;
    due    double precision;
    shut   boolean;
BEGIN
    SELECT least(
        (SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 1 ORDER BY j.sort LIMIT 1),
        (SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 2 ORDER BY j.sort LIMIT 1),
        (SELECT j.sort FROM jobs j WHERE j.queue = q AND j.state = 4 ORDER BY j.sort LIMIT 1)
    ), EXISTS (SELECT FROM pauses p WHERE p.queue = q AND p.paused AND coalesce(p.paused_until > moment, true))
    INTO due, shut;
    IF due <= moment THEN
        PERFORM apply_due(q, moment, 1000);
    END IF;
    IF shut THEN
        RETURN;
    END IF;
    LOOP
        IF max_cost IS NULL THEN
            chosen := ARRAY(
                SELECT j.ctid FROM jobs j WHERE j.queue = q AND j.state = 0
                ORDER BY j.sort, j.id LIMIT wanted FOR UPDATE SKIP LOCKED
            );
        ELSE
            chosen := afford(q, wanted, max_cost);
        END IF;
        EXIT WHEN cardinality(chosen) = 0;
        RETURN QUERY
            WITH leased AS (
                UPDATE jobs j SET state = 2, sort = moment + lease, worker = who, taken_at = moment
                WHERE j.ctid = ANY (chosen) AND is_sound(
                    j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at,
                    j.crashes, j.rank, j.keep_for
                )
                RETURNING j.id, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time, j.prev_start_time,
                          j.waiters, j.fresh_at, j.crashes
            )
            SELECT * FROM leased l ORDER BY l.rank, l.id;
        GET DIAGNOSTICS taken = ROW_COUNT;
        IF taken > 0 THEN
            PERFORM count_up(q, -taken, 0, taken);
        END IF;
        EXIT WHEN taken = cardinality(chosen);
        -- What is still ready of the chosen cannot be read. With a budget nobody knows what was spent: the call ends.
        PERFORM set_aside(moment, ARRAY(SELECT j.id FROM jobs j WHERE j.ctid = ANY (chosen) AND j.state = 0));
        aside := aside + cardinality(chosen) - taken;
        wanted := wanted - taken;
        EXIT WHEN wanted <= 0 OR aside >= 1000 OR (max_cost IS NOT NULL AND taken > 0);
    END LOOP;
END $$;

-- glance: look, which says how many ms it is to the next moment, to a fraction, and not when that is: so no other clock
-- than the server's matters. `starts`: at that moment a job starts, unless something happens to it, so who waits need not
-- look again then. (A lease that ends at that moment will mostly have been settled by then.)
CREATE FUNCTION glance(
    at bigint, queues text[], careful boolean,
    OUT takable boolean, OUT closed boolean, OUT due_in double precision, OUT starts boolean
) LANGUAGE plpgsql AS $$
DECLARE
    exact  double precision := coalesce(at::double precision, extract(epoch FROM clock_timestamp()) * 1000);
    moment bigint := floor(exact);
    next   bigint;
    start  bigint;
BEGIN
    SELECT coalesce(bool_or(NOT s.shut AND (s.ready OR least(s.start, s.lease_end) <= moment)), false),
           coalesce(bool_or(s.shut), false),
           min(CASE WHEN s.shut THEN s.reopens
                    WHEN least(s.start, s.lease_end) IS NOT NULL THEN as_moment(least(s.start, s.lease_end)) END),
           min(as_moment(s.start)) FILTER (WHERE NOT s.shut AND s.start IS NOT NULL)
    INTO takable, closed, next, start
    FROM (
        SELECT coalesce(p.paused AND coalesce(p.paused_until > moment, true), false) AS shut, p.paused_until AS reopens,
               CASE WHEN careful THEN first_free(u.queue, 0) IS NOT NULL
                    ELSE (SELECT id FROM jobs WHERE queue = u.queue AND state = 0 ORDER BY sort, id LIMIT 1) IS NOT NULL
               END AS ready,
               CASE WHEN careful THEN first_free(u.queue, 1)
                    ELSE (SELECT sort FROM jobs WHERE queue = u.queue AND state = 1 ORDER BY sort LIMIT 1)
               END AS start,
               CASE WHEN careful THEN first_free(u.queue, 2)
                    ELSE (SELECT sort FROM jobs WHERE queue = u.queue AND state = 2 ORDER BY sort LIMIT 1)
               END AS lease_end
        FROM unnest(queues) AS u(queue) LEFT JOIN pauses p ON p.queue = u.queue
    ) s;
    due_in := next - exact;
    starts := NOT takable AND coalesce(start <= next, false);
END $$;

-- The first jobs of a state by id. Where nearly all jobs of a store wait in one queue, `queue = q AND state = n ORDER BY
-- id` looks to the planner as if the primary key would soon come to one; for a queue that has none, that is a walk through
-- the whole table (seconds, with ten million jobs). Compared as rows, only jobs_by_id has this order.

-- As in 0011_people.
CREATE OR REPLACE FUNCTION browse(at bigint, q text, which smallint, after bigint, most bigint)
RETURNS SETOF job_info LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
    page   bigint[];
BEGIN
    PERFORM apply_due(q, moment, 1000);
    IF which = 2 THEN
        page := ARRAY(
            SELECT t.id FROM (SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = 2 OFFSET 0) t
            WHERE t.id > after ORDER BY t.id LIMIT most
        );
    ELSE
        page := ARRAY(
            SELECT j.id FROM jobs j
            WHERE (j.queue, j.state, j.id) > (q, which, after) AND (j.queue, j.state) <= (q, which) AND j.state <> 2
            ORDER BY j.queue, j.state, j.id LIMIT most
        );
    END IF;
    PERFORM mend(moment, page);
    RETURN QUERY SELECT d.* FROM (
        SELECT * FROM jobs j WHERE j.id = ANY (page) AND j.state + 0 = which ORDER BY j.id
    ) j, describe(j::jobs) d;
END $$;

-- As in 0011_people.
CREATE OR REPLACE FUNCTION stats(
    at bigint, OUT moment bigint, OUT queue text, OUT ready bigint, OUT taken bigint, OUT delayed bigint, OUT dead bigint,
    OUT done bigint, OUT retried bigint, OUT buried bigint, OUT expired bigint, OUT paused boolean,
    OUT paused_until bigint, OUT oldest bigint
) RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    instant bigint := present(at);
    unspent bigint := 1000 - gather_strays(instant, 1000);
    known   text;
BEGIN
    FOR known IN SELECT k FROM known_queues() AS k LOOP
        unspent := unspent - apply_due(known, instant, unspent);
        EXIT WHEN unspent <= 0;
    END LOOP;
    RETURN QUERY
        SELECT instant, q, c.ready, c.taken, c.delayed, c.dead, c.done, c.retried, c.buried, c.expired,
               coalesce(p.paused AND coalesce(p.paused_until > instant, true), false), p.paused_until,
               (SELECT j.created_at FROM jobs j
                WHERE (j.queue, j.state, j.id) >= (q, 0::smallint, -9223372036854775808)
                  AND (j.queue, j.state) <= (q, 0::smallint) AND j.state <> 2
                ORDER BY j.queue, j.state, j.id LIMIT 1)
        FROM known_queues() AS q
        LEFT JOIN pauses p ON p.queue = q
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(ready), 0)::bigint AS ready, coalesce(sum(taken), 0)::bigint AS taken,
                   coalesce(sum(delayed), 0)::bigint AS delayed, coalesce(sum(dead), 0)::bigint AS dead,
                   coalesce(sum(done), 0)::bigint AS done, coalesce(sum(retried), 0)::bigint AS retried,
                   coalesce(sum(buried), 0)::bigint AS buried, coalesce(sum(expired), 0)::bigint AS expired
            FROM counts WHERE queue = q
        ) c
        ORDER BY q;
END $$;

-- As in 0012_retention.
CREATE OR REPLACE FUNCTION purge(at bigint, q text, which smallint, before bigint, most bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    PERFORM apply_due(q, present(at), 1000);
    IF which = 2 THEN
        ids := ARRAY(
            SELECT t.id FROM (SELECT * FROM jobs j WHERE j.queue = q AND j.state = 2 OFFSET 0) t
            WHERE coalesce(t.created_at < before, true) ORDER BY t.id LIMIT most
        );
        PERFORM lock_jobs(ids);
        ids := ARRAY(SELECT j.id FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = 2);
    ELSIF before IS NULL AND most IS NULL THEN
        -- Locked here, so that each is still in that state when it is deleted.
        ids := ARRAY(
            SELECT j.id FROM jobs j
            WHERE (j.queue, j.state, j.id) >= (q, which, -9223372036854775808) AND (j.queue, j.state) <= (q, which)
              AND j.state <> 2
            ORDER BY j.queue, j.state, j.id FOR UPDATE
        );
    ELSIF which = 3 THEN
        ids := ARRAY(
            SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = 3 AND j.sort < coalesce(before, 'Infinity'::float8)
            ORDER BY j.sort, j.id LIMIT most FOR UPDATE SKIP LOCKED
        );
    ELSIF which = 4 THEN
        ids := ARRAY(
            SELECT j.id FROM jobs j
            WHERE j.queue = q AND j.state = 4 AND j.ended_at < coalesce(before, 9223372036854775807)
            ORDER BY j.ended_at, j.id LIMIT most FOR UPDATE SKIP LOCKED
        );
    ELSE
        ids := ARRAY(
            SELECT t.id FROM (
                SELECT j.id, j.created_at FROM jobs j
                WHERE (j.queue, j.state, j.id) >= (q, which, -9223372036854775808) AND (j.queue, j.state) <= (q, which)
                  AND j.state <> 2
                ORDER BY j.queue, j.state, j.id LIMIT most FOR UPDATE SKIP LOCKED
            ) t WHERE coalesce(t.created_at < before, true)
        );
    END IF;
    RETURN delete_jobs(ids);
END $$;

-- As in 0016_place. The last id of a rank is found in jobs_line, and not by a walk through the ids.
CREATE OR REPLACE FUNCTION stretches(
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
            far := (
                SELECT j.id FROM jobs j
                WHERE (j.queue, j.state, j.sort) >= (q, 0::smallint, lane)
                  AND (j.queue, j.state, j.sort) <= (q, 0::smallint, lane)
                ORDER BY j.queue, j.state, j.sort, j.id LIMIT 1
            );
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
                SELECT j.id FROM jobs j
                WHERE (j.queue, j.state, j.sort) >= (q, 0::smallint, lane)
                  AND (j.queue, j.state, j.sort) <= (q, 0::smallint, lane)
                ORDER BY j.queue DESC, j.state DESC, j.sort DESC, j.id DESC LIMIT 1
            );
            beyond := next_rank(q, lane);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Settings as in 0007_settings.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
          AND p.proname IN ('enqueue_one', 'finish_plain', 'take', 'glance', 'stats', 'browse', 'purge', 'stretches')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', verb);
        EXECUTE format('ALTER FUNCTION %s SET search_path FROM CURRENT', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', verb);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', verb);
    END LOOP;
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
          AND p.proname IN ('take', 'glance', 'stats', 'browse', 'stretches')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', verb);
    END LOOP;
END $$;
