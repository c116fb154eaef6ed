-- What people call: as in 0006_people and 0008_afresh, with bounded work, and around records that cannot be read.

CREATE OR REPLACE FUNCTION describe(j jobs) RETURNS SETOF job_info LANGUAGE sql STABLE AS $$
    SELECT j.id, j.queue, j.state, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time,
           j.prev_start_time, j.waiters, j.keep_for, j.worker, j.taken_at,
           CASE j.state WHEN 2 THEN as_moment(j.sort) END, j.ended_at, j.reason, j.result, j.fresh_at, j.crashes
$$;

-- Set those of the jobs aside that cannot be read.
CREATE FUNCTION mend(moment bigint, ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    bad bigint[] := ARRAY(
        SELECT j.id FROM jobs j WHERE j.id = ANY (ids) AND NOT (
            j.state BETWEEN 0 AND 4 AND is_name(j.queue) AND is_sound(
                j.id, j.cost, j.created_at, j.start_time, j.prev_start_time, j.attempts, j.waiters, j.fresh_at,
                j.crashes, j.rank, j.keep_for
            )
        ) FOR UPDATE SKIP LOCKED
    );
BEGIN
    IF cardinality(bad) > 0 THEN
        PERFORM set_aside(moment, bad);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION find(at bigint, job_id bigint) RETURNS SETOF job_info LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
BEGIN
    PERFORM apply_own_due(moment, ARRAY[job_id]);
    PERFORM mend(moment, ARRAY[job_id]);
    RETURN QUERY SELECT d.* FROM jobs j, describe(j) d WHERE j.id = job_id AND j.state BETWEEN 0 AND 4;
END $$;

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
            SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = which AND j.state <> 2 AND j.id > after
            ORDER BY j.id LIMIT most
        );
    END IF;
    PERFORM mend(moment, page);
    RETURN QUERY SELECT d.* FROM (
        SELECT * FROM jobs j WHERE j.id = ANY (page) AND j.state + 0 = which ORDER BY j.id
    ) j, describe(j::jobs) d;
END $$;

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
               (SELECT j.created_at FROM jobs j WHERE j.queue = q AND j.state = 0 ORDER BY j.id LIMIT 1)
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

CREATE OR REPLACE FUNCTION remove(at bigint, ids bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
BEGIN
    PERFORM apply_own_due(moment, ids);
    PERFORM mend(moment, ids);
    RETURN delete_jobs(ids);
END $$;

CREATE OR REPLACE FUNCTION rerank(at bigint, ids bigint[], queues text[], ranks double precision[], seen bigint[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment  bigint := present(at);
    last    record;
BEGIN
    PERFORM apply_own_due(moment, ids);
    PERFORM lock_jobs(ids);
    SELECT sum(good.times), array_agg(good.id ORDER BY good.id) AS ids, array_agg(good.rank ORDER BY good.id) AS ranks
    INTO last
    FROM (
        SELECT u.id, count(*) AS times, (array_agg(u.rank ORDER BY u.ord DESC))[1] AS rank
        FROM unnest(ids, queues, ranks, seen) WITH ORDINALITY AS u(id, queue, rank, seen, ord), LATERAL (
            SELECT j.queue, j.state, j.waiters FROM jobs j WHERE j.id = u.id OFFSET 0
        ) j
        WHERE j.queue = u.queue AND j.state IN (0, 1) AND coalesce(j.waiters <= u.seen, true)
        GROUP BY u.id
    ) good;
    UPDATE jobs j
    SET rank = last.ranks[width_bucket(j.id, last.ids)],
        sort = CASE j.state WHEN 0 THEN last.ranks[width_bucket(j.id, last.ids)] ELSE j.sort END
    WHERE j.id = ANY (last.ids);
    RETURN coalesce(last.sum, 0);
END $$;

CREATE OR REPLACE FUNCTION revive(at bigint, ids bigint[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    moment  bigint := present(at);
    revived text[] := '{}';
    wanted  bigint;
    owner   text;
BEGIN
    PERFORM lock_jobs(ids);
    PERFORM mend(moment, ids);
    FOREACH wanted IN ARRAY ids LOOP
        BEGIN
            UPDATE jobs j
            SET state = 0, sort = j.rank, attempts = j.attempts + 1, fresh_at = j.attempts + 1, crashes = 0,
                prev_start_time = j.start_time, start_time = moment, ended_at = NULL
            WHERE j.id = wanted AND j.state = 3 RETURNING j.queue INTO owner;
            CONTINUE WHEN NOT FOUND;
            PERFORM count_up(owner, 1, 0, 0, -1);
            revived := revived || owner;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END LOOP;
    RETURN revived;
END $$;

-- As in 0005_settle. What is kept for no time that is one goes at once.
CREATE OR REPLACE FUNCTION finish_jobs(moment bigint, ids bigint[], results bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    shared bigint[];
BEGIN
    UPDATE jobs j
    SET state = 4, sort = moment + round(j.keep_for * 1000), result = results[width_bucket(j.id, ids)], ended_at = moment
    WHERE j.id = ANY (ids) AND j.keep_for > 0 AND j.keep_for <= 18014398509481;
    WITH gone AS (DELETE FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = 2 RETURNING j.id, j.waiters)
    SELECT array_agg(g.id) INTO shared FROM gone g WHERE g.waiters > 0;
    DELETE FROM waiters WHERE job = ANY (shared);
END $$;

-- As in 0008_afresh, with numbers that cannot overflow.
CREATE OR REPLACE FUNCTION replace_job(moment bigint, held jobs, new new_job, apart boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ran     integer := (held.state = 2)::int;
    overdue integer := (held.state = 2 AND held.sort <= moment)::int;  -- that lease ended by itself
    later   integer := (new.start > moment)::int;
    token   integer := least(held.attempts, 2147483646) + ran;
BEGIN
    UPDATE jobs j
    SET state = later, sort = CASE later WHEN 1 THEN new.start ELSE new.rank END, rank = new.rank, cost = new.cost,
        keep_for = new.keep_for, data = new.data, attempts = token, fresh_at = token, crashes = 0,
        start_time = new.start, prev_start_time = CASE ran WHEN 1 THEN j.start_time ELSE j.prev_start_time END
    WHERE j.id = held.id;
    PERFORM count_up(
        held.queue, (1 - later) - (held.state = 0)::int, later - (held.state = 1)::int, -ran,
        d_expired => overdue, apart => apart
    );
END $$;

-- As in 0003_enqueue. A waiter's number is above those that are there, whatever the job says.
CREATE OR REPLACE FUNCTION join_job(
    moment bigint, new new_job, apart boolean, OUT id bigint, OUT what smallint, OUT crowd integer
) LANGUAGE plpgsql AS $$
DECLARE
    held jobs;
BEGIN
    LOOP
        IF new.way = 0 THEN
            SELECT * INTO held FROM jobs j WHERE j.queue || '' = new.queue AND j.key = new.key AND j.state < 3;
        ELSE
            SELECT * INTO held FROM jobs j WHERE j.queue || '' = new.queue AND j.key = new.key AND j.state < 3
            FOR UPDATE;
        END IF;
        EXIT WHEN FOUND;
        IF cardinality(insert_keyed(moment, ARRAY[new], apart)) = 1 THEN  -- the holder ended in between
            id := new.id;
            what := 0;
            crowd := (new.guest IS NOT NULL)::int;
            RETURN;
        END IF;
    END LOOP;
    id := held.id;
    what := CASE new.way WHEN 0 THEN 1 WHEN 1 THEN 2 ELSE 3 END;
    crowd := held.waiters;
    IF new.way > 0 AND new.guest IS NOT NULL THEN
        crowd := least(crowd, 2147483646) + 1;
        INSERT INTO waiters (job, n, data)
        SELECT held.id, coalesce(max(w.n), 0) + 1, new.guest FROM waiters w WHERE w.job = held.id;
        UPDATE jobs j SET waiters = crowd WHERE j.id = held.id;
    END IF;
    IF new.way = 1 THEN
        PERFORM replace_job(moment, held, new, apart);
    END IF;
END $$;
