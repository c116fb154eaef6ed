-- enqueue and what it is made of. Jobs come as arrays, one for each field, an element for each job; an array may be
-- empty where every job has the default. `ways`: 0 keep, 1 replace, 2 attach. `guests`: the waiters.

-- A job to be stored, with its fields filled in.
CREATE TYPE new_job AS (
    ord bigint, id bigint, queue text, data bytea, rank double precision, start bigint, cost bigint,
    keep_for double precision, key text, way smallint, guest bytea
);

-- The arrays as rows, in order. A start moment in the past is now.
CREATE FUNCTION new_jobs(
    moment bigint, ids bigint[], queues text[], datas bytea[], ranks double precision[], delays bigint[],
    starts bigint[], costs bigint[], keeps double precision[], keys text[], ways smallint[], guests bytea[]
) RETURNS SETOF new_job LANGUAGE sql STABLE AS $$
    SELECT ord, id, queue, data, coalesce(rank, 0), greatest(moment, coalesce(moment + delay, start, moment)),
           coalesce(cost, 0), coalesce(keep_for, 0), key, coalesce(way, 0::smallint), guest
    FROM unnest(ids, queues, datas, ranks, delays, starts, costs, keeps, keys, ways, guests)
         WITH ORDINALITY AS u(id, queue, data, rank, delay, start, cost, keep_for, key, way, guest, ord)
$$;

-- Store jobs; the answers come as arrays in the order of the jobs. whats: 0 created, 1 kept, 2 replaced, 3 attached, or
-- NULL where all were created without waiters; crowds: how many waiters each has. `apart`: in a caller's transaction.
CREATE FUNCTION store_jobs(
    moment bigint, queues text[], datas bytea[], ranks double precision[], delays bigint[], starts bigint[],
    costs bigint[], keeps double precision[], keys text[], ways smallint[], guests bytea[], apart boolean,
    OUT ids bigint[], OUT whats smallint[], OUT crowds integer[]
) LANGUAGE plpgsql AS $$
DECLARE
    r      record;
    keyed  new_job[];
BEGIN
    ids := ARRAY(SELECT nextval('job_ids') FROM generate_series(1, cardinality(queues)));
    IF cardinality(keys) > 0 THEN
        keyed := ARRAY(
            SELECT n FROM new_jobs(moment, ids, queues, datas, ranks, delays, starts, costs, keeps, keys, ways, guests) n
            WHERE n.key IS NOT NULL
        );
        SELECT s.ids, s.whats, s.crowds INTO ids, whats, crowds FROM store_keyed(moment, ids, keyed, apart) s;
    END IF;
    FOR r IN
        WITH stored AS (
            INSERT INTO jobs AS j (id, queue, state, sort, rank, cost, created_at, start_time, keep_for, data)
            SELECT n.id, n.queue, (n.start > moment)::int, CASE WHEN n.start > moment THEN n.start ELSE n.rank END,
                   n.rank, n.cost, moment, n.start, n.keep_for, n.data
            FROM new_jobs(moment, ids, queues, datas, ranks, delays, starts, costs, keeps, keys, '{}', '{}') n
            WHERE n.key IS NULL
            RETURNING j.queue, j.state
        )
        SELECT queue, count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state = 1) AS delayed
        FROM stored GROUP BY queue
    LOOP
        PERFORM count_up(r.queue, r.ready, r.delayed, 0, apart => apart);
    END LOOP;
END $$;

-- Store the jobs that have a key. `fresh` are the ids that new jobs get; where a job is already there, the answer has
-- its id instead.
--
-- Two calls with the same key cannot both create: the unique index lets one insert, and the other waits for its commit
-- (ON CONFLICT), then finds the row. No deadlock among such calls: first the holders that will be changed are locked by
-- id, like everywhere; then the new rows are inserted in the order of their keys. The one lock that comes out of turn
-- is that of a holder that appeared in between; should that ever close a circle, PostgreSQL ends one of the calls, which
-- has then changed nothing and is repeated by the client.
CREATE FUNCTION store_keyed(
    moment bigint, fresh bigint[], keyed new_job[], apart boolean,
    OUT ids bigint[], OUT whats smallint[], OUT crowds integer[]
) LANGUAGE plpgsql AS $$
DECLARE
    made bigint[];
    r    new_job;
    a    record;
BEGIN
    ids := fresh;
    whats := array_fill(0::smallint, ARRAY[cardinality(fresh)]);
    crowds := array_fill(0, ARRAY[cardinality(fresh)]);
    PERFORM lock_jobs((
        SELECT key_holders(array_agg(k.queue), array_agg(k.key)) FROM unnest(keyed) k WHERE k.way > 0
    ));
    made := insert_keyed(moment, keyed, apart);
    FOR r IN SELECT * FROM unnest(keyed) k WHERE k.guest IS NOT NULL AND k.id IN (SELECT unnest(made)) LOOP
        crowds[r.ord] := 1;
    END LOOP;
    FOR r IN
        SELECT * FROM unnest(keyed) k WHERE k.id NOT IN (SELECT unnest(made))
        ORDER BY k.queue COLLATE "C", k.key COLLATE "C", k.ord
    LOOP
        SELECT * INTO a FROM join_job(moment, r, apart);
        ids[r.ord] := a.id;
        whats[r.ord] := a.what;
        crowds[r.ord] := a.crowd;
    END LOOP;
END $$;

-- Insert the first job of each key that nobody holds, in the order of the keys; gives the ids that were inserted.
CREATE FUNCTION insert_keyed(moment bigint, keyed new_job[], apart boolean) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    made bigint[];
    r    record;
BEGIN
    WITH firsts AS (
        SELECT DISTINCT ON (k.queue COLLATE "C", k.key COLLATE "C") k.*
        FROM unnest(keyed) k ORDER BY k.queue COLLATE "C", k.key COLLATE "C", k.ord
    ), stored AS (
        INSERT INTO jobs AS j
            (id, queue, state, sort, rank, cost, created_at, start_time, keep_for, data, key, waiters)
        SELECT n.id, n.queue, (n.start > moment)::int, CASE WHEN n.start > moment THEN n.start ELSE n.rank END,
               n.rank, n.cost, moment, n.start, n.keep_for, n.data, n.key, (n.guest IS NOT NULL)::int
        FROM firsts n ORDER BY n.queue COLLATE "C", n.key COLLATE "C"
        ON CONFLICT (key, queue) WHERE key IS NOT NULL AND state < 3 DO NOTHING
        RETURNING j.id
    )
    SELECT array_agg(id) INTO made FROM stored;
    INSERT INTO waiters (job, n, data)
    SELECT k.id, 1, k.guest FROM unnest(keyed) k WHERE k.guest IS NOT NULL AND k.id IN (SELECT unnest(made));
    FOR r IN
        SELECT k.queue, count(*) FILTER (WHERE k.start <= moment) AS ready,
               count(*) FILTER (WHERE k.start > moment) AS delayed
        FROM unnest(keyed) k WHERE k.id IN (SELECT unnest(made)) GROUP BY k.queue
    LOOP
        PERFORM count_up(r.queue, r.ready, r.delayed, 0, apart => apart);
    END LOOP;
    RETURN coalesce(made, '{}');
END $$;

-- The key of this job is held: what becomes of the newcomer. `keep` needs no lock: it changes nothing, and what it saw
-- was true when it looked.
CREATE FUNCTION join_job(moment bigint, new new_job, apart boolean, OUT id bigint, OUT what smallint, OUT crowd integer)
LANGUAGE plpgsql AS $$
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
        crowd := crowd + 1;
        INSERT INTO waiters (job, n, data) VALUES (held.id, crowd, new.guest);
        UPDATE jobs j SET waiters = crowd WHERE j.id = held.id;
    END IF;
    IF new.way = 1 THEN
        PERFORM replace_job(moment, held, new, apart);
    END IF;
END $$;

-- Give a locked job new content. A run of the old content is over: its token must not fit any more.
CREATE FUNCTION replace_job(moment bigint, held jobs, new new_job, apart boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ran     integer := (held.state = 2)::int;
    overdue integer := (held.state = 2 AND held.sort <= moment)::int;  -- that lease ended by itself
    later   integer := (new.start > moment)::int;
BEGIN
    UPDATE jobs j
    SET state = later, sort = CASE later WHEN 1 THEN new.start ELSE new.rank END, rank = new.rank, cost = new.cost,
        keep_for = new.keep_for, data = new.data, attempts = j.attempts + ran, start_time = new.start,
        prev_start_time = CASE ran WHEN 1 THEN j.start_time ELSE j.prev_start_time END
    WHERE j.id = held.id;
    PERFORM count_up(
        held.queue, (1 - later) - (held.state = 0)::int, later - (held.state = 1)::int, -ran,
        d_expired => overdue, apart => apart
    );
END $$;

-- enqueue: store all of these jobs or none. Answer: see store_jobs. `news`: notifications that the commit sends.
CREATE FUNCTION enqueue(
    at bigint, queues text[], datas bytea[], ranks double precision[], delays bigint[], starts bigint[],
    costs bigint[], keeps double precision[], keys text[], ways smallint[], guests bytea[], apart boolean,
    news text[], OUT ids bigint[], OUT whats smallint[], OUT crowds integer[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT s.ids, s.whats, s.crowds INTO ids, whats, crowds FROM store_jobs(
        present(at), queues, datas, ranks, delays, starts, costs, keeps, keys, ways, guests, apart
    ) s;
    IF cardinality(news) > 0 THEN
        PERFORM pg_notify(current_schema(), n) FROM unnest(news) AS u(n);
    END IF;
END $$;
