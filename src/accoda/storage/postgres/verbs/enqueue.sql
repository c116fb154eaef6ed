-- enqueue: store all of these jobs or none, in order.
--   at      the present moment, for tests; NULL: the server's clock
--   batch   the jobs; on_duplicate: 0 keep, 1 replace, 2 attach, 3 rerank; NULL where a field has its default
--   apart   whether this is in a caller's own transaction
--   news    the notifications that the commit sends, see notify_queues
-- Answer, in the order of the jobs: their ids; what became of each (0 created, 1 kept, 2 replaced, 3 attached, 4 reranked); how many
-- waiters each has. The last two are NULL where all were created without waiters.

CREATE TYPE new_job AS (
    queue text, data bytea, rank double precision, delay bigint, start_at bigint, cost bigint,
    keep_for double precision, key text, on_duplicate smallint, waiter bytea, reports_to text, lane text
);

CREATE FUNCTION enqueue(
    at bigint, batch new_job[], apart boolean, news text[], OUT ids bigint[], OUT whats smallint[], OUT waiting integer[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    moment  bigint := present(at);
    entries double precision[];
    touched text[];
BEGIN
    IF NOT apart AND EXISTS (SELECT FROM unnest(batch) n WHERE n.lane IS NOT NULL)
       AND NOT EXISTS (SELECT FROM unnest(batch) n WHERE n.key IS NOT NULL) THEN
        entries := entries_of(moment, batch);
    END IF;
    SELECT s.ids, s.whats, s.waiting, s.touched INTO ids, whats, waiting, touched
    FROM store_jobs(moment, batch, apart, entries) s;
    IF touched IS NOT NULL THEN
        IF apart THEN
            PERFORM leave_unbalanced(touched);
        ELSE
            news := news || others_woken(balance(touched), batch);
        END IF;
    END IF;
    IF cardinality(news) > 0 THEN
        PERFORM notify_queues(news);
    END IF;
END $$;

-- New jobs without keys that come into the line at once, since their lane has room for all that come and holds none: what
-- orders each of the batch there, NULL for the others. They are written once, and not first as held. Lanes come in by name, so
-- those behind one without room wait for balance. The locks of all their lanes are held from here on, and nothing is waited
-- for after it: a job without a key waits for no other.
CREATE FUNCTION entries_of(moment bigint, batch new_job[]) RETURNS double precision[] LANGUAGE plpgsql AS $$
DECLARE
    entries double precision[] := array_fill(NULL::double precision, ARRAY[cardinality(batch)]);
    queues  text[];
    lanes   text[];
    owners  text[];
    q       text;
    rules   lane_rules;
    n       record;
    turns   double precision[];
BEGIN
    SELECT array_agg(l.queue), array_agg(l.lane) INTO queues, lanes
    FROM (SELECT DISTINCT u.queue, u.lane FROM unnest(batch) u WHERE u.lane IS NOT NULL) l;
    owners := lock_lanes(queues, lanes);
    FOR q IN SELECT DISTINCT o.owner FROM unnest(owners, queues) o(owner, queue) WHERE o.owner = o.queue LOOP
        SELECT * INTO rules FROM lane_rules r WHERE r.queue = q;
        SELECT array_agg(c.place) AS places, array_agg(c.lane) AS lanes, array_agg(c.rank) AS ranks, array_agg(c.cost) AS costs
        INTO n
        FROM (
            SELECT l.*, bool_and(l.fits) OVER (ORDER BY l.lane) AS fit FROM (
                SELECT b.*, CASE
                    WHEN b.nth > 1 THEN NULL
                    WHEN m.most IS NULL THEN (
                        SELECT h.id FROM jobs h WHERE h.queue || '' = q AND h.lane = b.lane AND h.state = -1 LIMIT 1
                    ) IS NULL
                    ELSE (  -- whether there are more than leave room, or one is held
                        SELECT count(*) <= m.most - b.comers AND count(*) FILTER (WHERE o.state = -1) = 0 FROM (
                            SELECT j.state FROM jobs j
                            WHERE j.queue || '' = q AND j.lane = b.lane AND j.state IN (-1, 0, 2)
                            LIMIT greatest(0, m.most - b.comers + 1)
                        ) o
                    )
                END AS fits
                FROM (
                    SELECT u.place, u.lane COLLATE "C" AS lane, coalesce(u.rank, 0) AS rank, coalesce(u.cost, 0) AS cost,
                           row_number() OVER (PARTITION BY u.lane COLLATE "C") AS nth,
                           count(*) OVER (PARTITION BY u.lane COLLATE "C") AS comers
                    FROM (SELECT * FROM unnest(batch) WITH ORDINALITY e(
                        queue, data, rank, delay, start_at, cost, keep_for, key, way, waiter, reports_to, lane, place
                    )) u
                    WHERE u.queue = q AND u.lane IS NOT NULL AND coalesce(moment + u.delay, u.start_at, moment) <= moment
                ) b, LATERAL (SELECT CASE WHEN b.nth = 1 THEN limit_of(rules, b.lane) END AS most OFFSET 0) m
            ) l ORDER BY l.place
        ) c WHERE c.fit;
        CONTINUE WHEN n.places IS NULL;
        turns := turns_of(q, n.lanes, n.ranks, n.costs);
        FOR i IN 1 .. cardinality(n.places) LOOP
            entries[n.places[i]] := turns[i];
        END LOOP;
    END LOOP;
    RETURN entries;
END $$;

-- What to notify of queues that are not those of the batch: those have news of their own.
CREATE FUNCTION others_woken(woken text[], batch new_job[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT unnest(woken) EXCEPT SELECT '+' || n.queue FROM unnest(batch) n);
END $$;

-- enqueue in a caller's own transaction, by whatever driver: the fields come as arrays, which every driver knows. It
-- brings the planner's settings of our own sessions with it, and its commit wakes the workers. It is in plpgsql because each
-- call of a function in SQL plans it anew.
CREATE FUNCTION enqueue_apart(
    at bigint, queues text[], datas bytea[], ranks double precision[], delays bigint[], starts bigint[], costs bigint[],
    keeps double precision[], keys text[], ways smallint[], waiters bytea[], flows text[], lanes text[],
    OUT ids bigint[], OUT whats smallint[], OUT waiting integer[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    SELECT e.ids, e.whats, e.waiting INTO ids, whats, waiting FROM enqueue(
        at,
        ARRAY(
            SELECT ROW(u.*)::new_job
            FROM unnest(queues, datas, ranks, delays, starts, costs, keeps, keys, ways, waiters, flows, lanes) u
        ),
        true,
        ARRAY(SELECT DISTINCT unnest(group_of(name)) FROM (SELECT DISTINCT unnest(queues) AS name) n)
    ) e;
END $$;

-- Store jobs; the answer is that of enqueue, and the lanes to balance. `entries`: that of entries_of, where it was asked.
--
-- Two calls with the same key cannot both create: the unique index lets one insert, and the other waits for its commit
-- (ON CONFLICT), then finds the row. No deadlock among such calls: first the holders that will be changed are locked in the
-- order of lock_jobs, like everywhere; then the new rows are inserted in the order of their keys. The one lock that comes
-- out of turn is that of a holder that appeared in between; should that ever close a circle, PostgreSQL ends one of the
-- calls, which has then changed nothing and is repeated by the client.
CREATE FUNCTION store_jobs(
    moment bigint, batch new_job[], apart boolean, entries double precision[] = NULL,
    OUT ids bigint[], OUT whats smallint[], OUT waiting integer[], OUT touched text[]
) LANGUAGE plpgsql AS $$
DECLARE
    keyed boolean := EXISTS (SELECT FROM unnest(batch) n WHERE n.key IS NOT NULL);
    made  bigint[] := '{}';
    r     record;
    other text[];
BEGIN
    ids := ARRAY(SELECT nextval('job_ids') FROM generate_series(1, cardinality(batch)));
    IF keyed THEN
        PERFORM lock_jobs(key_holders(ARRAY(SELECT n FROM unnest(batch) n WHERE n.on_duplicate > 0)));
    END IF;
    FOR r IN
        WITH stored AS (
            INSERT INTO jobs AS j
                (id, queue, state, sort, rank, cost, created_at, start_time, keep_for, data, key, waiters, reports_to, lane)
            SELECT ids[n.ordinality], n.queue,
                   CASE WHEN n.start > moment THEN 1 WHEN n.lane IS NULL OR entries[n.ordinality] IS NOT NULL THEN 0
                        WHEN apart OR (SELECT l.queue FROM lane_rules l WHERE l.queue = n.queue) IS NOT NULL THEN -1
                        ELSE 0 END,  -- as entry_state, without a call for each job
                   CASE WHEN n.start > moment THEN n.start ELSE coalesce(entries[n.ordinality], n.rank, 0) END,
                   coalesce(n.rank, 0),
                   coalesce(n.cost, 0), moment, n.start, coalesce(n.keep_for, 0), n.data, n.key,
                   (n.waiter IS NOT NULL)::int, n.reports_to, n.lane
            FROM (
                SELECT *, greatest(moment, coalesce(moment + u.delay, u.start_at, moment)) AS start
                FROM unnest(batch) WITH ORDINALITY u
            ) n
            ORDER BY n.key COLLATE "C", n.queue COLLATE "C", n.ordinality
            ON CONFLICT (key, queue) WHERE key IS NOT NULL AND state < 3 DO NOTHING
            RETURNING j.id, j.queue, j.state, j.lane
        )
        SELECT queue, count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state = 1) AS delayed,
               count(*) FILTER (WHERE state = -1) AS held, CASE WHEN keyed THEN array_agg(id) END AS ids,
               array_agg(queue || '/' || lane)
               FILTER (WHERE lane IS NOT NULL AND (state = -1 OR state = 0 AND entries IS NULL)) AS touched
        FROM stored GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, r.ready, r.delayed, 0, d_held => r.held, apart => apart);
        made := made || r.ids;
        touched := touched || r.touched;
    END LOOP;
    IF keyed THEN
        SELECT s.ids, s.whats, s.waiting, s.touched INTO ids, whats, waiting, other
        FROM join_jobs(moment, batch, ids, made, apart) s;
        touched := touched || other;
    END IF;
END $$;

-- The jobs that hold the keys of new ones, as far as they can be seen.
CREATE FUNCTION key_holders(batch new_job[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT held.id FROM unnest(batch) n, LATERAL (
            SELECT j.id FROM jobs j WHERE j.queue || '' = n.queue AND j.key = n.key AND j.state < 3 OFFSET 0
        ) held
    );
END $$;

-- Give the jobs that were made their waiters, and let those whose key is held join the job that holds it.
CREATE FUNCTION join_jobs(
    moment bigint, batch new_job[], fresh bigint[], made bigint[], apart boolean,
    OUT ids bigint[], OUT whats smallint[], OUT waiting integer[], OUT touched text[]
) LANGUAGE plpgsql AS $$
DECLARE
    r record;
    a record;
BEGIN
    ids := fresh;
    whats := array_fill(0::smallint, ARRAY[cardinality(fresh)]);
    waiting := array_fill(0, ARRAY[cardinality(fresh)]);
    FOR r IN
        SELECT u.ordinality AS place, u.waiter, fresh[u.ordinality] NOT IN (SELECT unnest(made)) AS held
        FROM unnest(batch) WITH ORDINALITY u
        WHERE u.waiter IS NOT NULL OR fresh[u.ordinality] NOT IN (SELECT unnest(made))
        ORDER BY u.key COLLATE "C", u.queue COLLATE "C", u.ordinality
    LOOP
        IF r.held THEN
            SELECT * INTO a FROM join_job(moment, batch[r.place], apart);
            ids[r.place] := a.id;
            whats[r.place] := a.what;
            waiting[r.place] := a.waiting;
            touched := touched || a.touched;
        ELSE
            INSERT INTO waiters (job, n, data) VALUES (fresh[r.place], 1, r.waiter);
            waiting[r.place] := 1;
        END IF;
    END LOOP;
END $$;

-- The key of this job is held: what becomes of the newcomer. `keep` needs no lock: it changes nothing, and what it saw
-- was true when it looked.
CREATE FUNCTION join_job(
    moment bigint, new new_job, apart boolean, OUT id bigint, OUT what smallint, OUT waiting integer, OUT touched text[]
) LANGUAGE plpgsql AS $$
DECLARE
    way  smallint := coalesce(new.on_duplicate, 0);
    held jobs;
BEGIN
    IF way = 0 THEN
        SELECT * INTO held FROM jobs j WHERE j.queue || '' = new.queue AND j.key = new.key AND j.state < 3;
    ELSE
        SELECT * INTO held FROM jobs j WHERE j.queue || '' = new.queue AND j.key = new.key AND j.state < 3 FOR UPDATE;
    END IF;
    IF NOT FOUND THEN  -- the holder ended in between
        SELECT s.ids[1], s.whats[1], s.waiting[1], s.touched INTO id, what, waiting, touched
        FROM store_jobs(moment, ARRAY[new], apart) s;
        RETURN;
    END IF;
    id := held.id;
    what := way + 1;
    waiting := held.waiters;
    IF way IN (1, 2) AND new.waiter IS NOT NULL THEN
        waiting := waiting + 1;
        INSERT INTO waiters (job, n, data) VALUES (held.id, waiting, new.waiter);
        UPDATE jobs j SET waiters = waiting WHERE j.id = held.id;
    END IF;
    IF way = 1 THEN
        PERFORM replace_job(moment, held, new, apart);
    ELSIF way = 3 THEN
        PERFORM rerank_job(held, coalesce(new.rank, 0), apart);
    END IF;
    IF held.lane IS NOT NULL AND (way = 1 OR way = 3 AND held.state <= 0) THEN
        touched := ARRAY[held.queue || '/' || held.lane];
    END IF;
END $$;

-- Give a locked job that waits or runs another rank. One that is ready leaves the line and comes in again. The start time or
-- the lease stays what orders one that is delayed or taken.
CREATE FUNCTION rerank_job(j jobs, new_rank double precision, apart boolean = false) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    later job_state;
BEGIN
    UPDATE jobs r
    SET state = CASE WHEN r.state = 0 AND r.lane IS NOT NULL THEN entry_state(r.queue, apart) ELSE r.state END,
        rank = new_rank, sort = CASE WHEN r.state <= 0 THEN new_rank ELSE r.sort END
    WHERE r.id = j.id RETURNING r.state INTO later;
    IF later <> j.state THEN
        PERFORM add_counts(j.queue, -1, 0, 0, d_held => 1, apart => apart);
    END IF;
END $$;

-- Give a locked job new content. A run of the old content is over: its token must not fit any more.
CREATE FUNCTION replace_job(moment bigint, held jobs, new new_job, apart boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ran     integer := (held.state = 2)::int;
    overdue integer := (held.sort <= moment)::int;  -- its lease ended, or it started, before this
    start   bigint := greatest(moment, coalesce(moment + new.delay, new.start_at, moment));
    later   integer := CASE WHEN start > moment THEN 1 WHEN held.lane IS NULL THEN 0 ELSE entry_state(held.queue, apart) END;
BEGIN
    UPDATE jobs j
    SET state = later, sort = CASE later WHEN 1 THEN start ELSE coalesce(new.rank, 0) END, rank = coalesce(new.rank, 0),
        cost = coalesce(new.cost, 0), keep_for = coalesce(new.keep_for, 0), data = new.data, attempts = j.attempts + ran,
        tries = 0, crashes = 0, start_time = start,
        prev_start_time = CASE ran WHEN 1 THEN j.start_time ELSE j.prev_start_time END
    WHERE j.id = held.id;
    PERFORM add_counts(
        held.queue, (later = 0)::int - (held.state = 0)::int, (later = 1)::int - (held.state = 1)::int, -ran,
        d_expired => overdue * ran, d_promoted => overdue * (held.state = 1)::int,
        d_held => (later = -1)::int - (held.state = -1)::int, apart => apart
    );
END $$;
