-- Steps that the verbs share. Only the verbs call them; the search_path and the rights of the verb hold for them.
-- They are PL/pgSQL even where SQL would do: a session plans those once, and functions in plain SQL at every call.
--
-- Every verb is SECURITY DEFINER: it works on the tables with the rights of the schema's owner, so producers and workers
-- need no right to any table. Its search_path is fixed, so it means this schema's tables in whatever session it runs.
--
-- A plan is made once and must fit a table of ten jobs and of ten million, so no statement leaves the planner a choice of
-- where to begin: rows are found by `id = ANY`, by `ctid = ANY`, or by a LATERAL subquery with OFFSET 0, which it can
-- neither turn round nor merge. `queue || ''` and `state + 0` keep an index out of the choice that would look fine on an
-- empty table. Values for rows found by `id = ANY (ids)`, with ids in ascending order, are `value[width_bucket(id, ids)]`:
-- a binary search. Sessions of Accoda turn off what reads whole tables (`SESSION` in connection.py).

-- The present moment: the server's, unless a test says otherwise. This is the only place that reads a clock.
-- clock_timestamp() and not now(): a caller's transaction may have begun long ago.
CREATE FUNCTION present(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- Wake the callers that wait for these queues. `+queue` says that a job is ready there: see wakeups.py.
CREATE FUNCTION notify_queues(news text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(current_schema(), n) FROM unnest(news) AS u(n);
END $$;

-- How many jobs of a queue may be taken now: 0 where it is paused; NULL: as many as there are.
CREATE FUNCTION room_in(q text, moment bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN EXISTS (SELECT FROM pauses p WHERE p.queue = q AND p.until > moment) THEN 0 ELSE (
        SELECT r.total - (SELECT count(*) FROM (SELECT FROM jobs j WHERE j.queue = q AND j.state = 2 LIMIT r.total) taken)
        FROM lane_rules r WHERE r.queue = q AND r.total IS NOT NULL
    ) END;
END $$;

-- Add to the counters of a queue.
-- It never waits: it takes a slot that is not locked, or makes a new one. So writers do not queue up behind each
-- other's commit, and it takes no part in any deadlock. `apart` is for a caller's own transaction, which may stay open
-- for long or see an old snapshot: it gets a slot of its own. Once in a while the slots that are free are folded.
-- Nothing is lost to a concurrent update: the subquery locks the slot's last version, and the update, which may have
-- seen an older one, goes on to that under READ COMMITTED.
CREATE FUNCTION add_counts(
    q text, d_ready bigint, d_delayed bigint, d_taken bigint, d_dead bigint = 0,
    d_done bigint = 0, d_retried bigint = 0, d_buried bigint = 0, d_expired bigint = 0, d_cancelled bigint = 0,
    d_promoted bigint = 0, d_held bigint = 0, apart boolean = false
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT apart THEN
        UPDATE counts
        SET ready = ready + d_ready, delayed = delayed + d_delayed, taken = taken + d_taken, dead = dead + d_dead,
            done = done + d_done, retried = retried + d_retried, buried = buried + d_buried,
            expired = expired + d_expired, cancelled = cancelled + d_cancelled, promoted = promoted + d_promoted,
            held = held + d_held
        WHERE queue = q AND slot = (
            SELECT c.slot FROM counts c WHERE c.queue = q ORDER BY c.slot LIMIT 1 FOR UPDATE SKIP LOCKED
        );
        IF FOUND THEN
            IF random() < 0.02 THEN
                PERFORM fold_counts(q);
            END IF;
            RETURN;
        END IF;
    END IF;
    INSERT INTO counts (queue, ready, delayed, taken, dead, done, retried, buried, expired, cancelled, promoted, held)
    VALUES (q, d_ready, d_delayed, d_taken, d_dead, d_done, d_retried, d_buried, d_expired, d_cancelled, d_promoted, d_held);
END $$;

-- Where more than a few slots are free, make one of them.
CREATE FUNCTION fold_counts(q text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    free bigint[] := ARRAY(SELECT slot FROM counts WHERE queue = q ORDER BY slot LIMIT 100 FOR UPDATE SKIP LOCKED);
BEGIN
    IF cardinality(free) <= 8 THEN
        RETURN;
    END IF;
    WITH gone AS (DELETE FROM counts WHERE queue = q AND slot = ANY (free) RETURNING *)
    INSERT INTO counts (queue, ready, delayed, taken, dead, done, retried, buried, expired, cancelled, promoted, held)
    SELECT q, sum(ready), sum(delayed), sum(taken), sum(dead), sum(done), sum(retried), sum(buried), sum(expired),
           sum(cancelled), sum(promoted), sum(held)
    FROM gone;
END $$;

-- Lock jobs by id, lowest first, but those in accoda.flows after all others. With `reporting`, also the jobs there that get
-- the reports of these. Every call that waits for locks of several jobs takes them in this order, so two such calls cannot
-- wait for each other.
-- Flows come last because a plain Done finds out only when it has its jobs that they report: it can then lock the flows and
-- is still in order, and jobs that do not report are not looked at twice.
CREATE FUNCTION lock_jobs(ids bigint[], reporting boolean = false) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    locked   bigint;
    names    text[];  -- of the flows that get reports
    flows    bigint[];
    of_flows text[];  -- flows may report, too
BEGIN
    SELECT count(*), array_agg(l.reports_to) FILTER (WHERE reporting AND l.reports_to IS NOT NULL) INTO locked, names
    FROM (SELECT DISTINCT unnest(ids) AS id ORDER BY id) wanted, LATERAL (
        SELECT j.reports_to FROM jobs j WHERE j.id = wanted.id AND j.queue <> 'accoda.flows' FOR UPDATE
    ) l;
    IF locked = cardinality(ids) AND names IS NULL THEN
        RETURN;
    END IF;
    -- Read before they are locked: what a job reports to never changes.
    SELECT array_agg(f.id), array_agg(f.reports_to) FILTER (WHERE reporting) INTO flows, of_flows
    FROM unnest(ids) wanted(id), LATERAL (
        SELECT j.id, j.reports_to FROM jobs j WHERE j.id = wanted.id AND j.queue || '' = 'accoda.flows' OFFSET 0
    ) f;
    PERFORM FROM (SELECT DISTINCT unnest(flows || flows_named(names || of_flows)) AS id ORDER BY id) wanted,
            LATERAL (SELECT FROM jobs j WHERE j.id = wanted.id FOR UPDATE) l;
END $$;

-- Why an outcome or an extension with this token was not applied: 1 its lease is lost; 2 it has more waiters than were
-- seen; 3 its job was cancelled, and keeps the token of its last lease while it is kept.
CREATE FUNCTION why_refused(moment bigint, job_id bigint, run bigint, took bigint, q text)
RETURNS smallint LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((
        SELECT CASE j.state WHEN 2 THEN 2 WHEN 5 THEN 3 END FROM jobs j
        WHERE j.id = job_id AND j.attempts = run AND j.taken_at = took AND j.queue || '' = q AND j.sort > moment
    ), 1);
END $$;

-- Start locked jobs of a queue that are delayed no longer. Answer: the lanes to balance, as everywhere here.
CREATE FUNCTION start_jobs(q text, due tid[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    WITH started AS (
        UPDATE jobs SET state = CASE WHEN lane IS NULL THEN 0 ELSE entry_state(q) END, sort = rank
        WHERE ctid = ANY (due) RETURNING state, lane
    )
    SELECT count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state = -1) AS held,
           array_agg(DISTINCT q || '/' || lane) FILTER (WHERE lane IS NOT NULL) AS touched
    INTO r FROM started;
    PERFORM add_counts(q, r.ready, -cardinality(due), 0, d_promoted => cardinality(due), d_held => r.held);
    RETURN r.touched;
END $$;

-- Take back locked jobs of a queue whose lease has ended.
CREATE FUNCTION end_leases(q text, moment bigint, due tid[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    WITH back AS (
        UPDATE jobs
        SET state = CASE WHEN lane IS NULL THEN 0 ELSE entry_state(q) END, sort = rank, attempts = attempts + 1,
            crashes = crashes + 1, prev_start_time = start_time, start_time = moment
        WHERE ctid = ANY (due) RETURNING state, lane
    )
    SELECT count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state = -1) AS held,
           array_agg(DISTINCT q || '/' || lane) FILTER (WHERE lane IS NOT NULL) AS touched
    INTO r FROM back;
    PERFORM add_counts(q, r.ready, 0, -cardinality(due), d_expired => cardinality(due), d_held => r.held);
    RETURN r.touched;
END $$;

-- Delete jobs that are locked, with their waiters, and count them out. `removed`: how many there were.
CREATE FUNCTION delete_jobs(ids bigint[], OUT removed bigint, OUT touched text[]) LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    removed := 0;
    DELETE FROM waiters WHERE job = ANY (ids);
    FOR r IN
        WITH gone AS (DELETE FROM jobs j WHERE j.id = ANY (ids) RETURNING j.queue, j.state, j.lane)
        SELECT queue, count(*) AS n, count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state = -1) AS held,
               count(*) FILTER (WHERE state = 1) AS delayed, count(*) FILTER (WHERE state = 2) AS taken,
               count(*) FILTER (WHERE state = 3) AS dead,
               array_agg(DISTINCT queue || '/' || lane) FILTER (WHERE lane IS NOT NULL AND state IN (-1, 0, 2)) AS lanes,
               (SELECT ARRAY[l.queue || '/'] FROM lane_rules l WHERE l.queue = gone.queue AND l.total IS NOT NULL) AS with_total
        FROM gone GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, -r.ready, -r.delayed, -r.taken, -r.dead, d_held => -r.held);
        removed := removed + r.n;
        touched := touched || r.lanes || r.with_total;
    END LOOP;
END $$;

-- The jobs of a queue in a state whose moment has come, oldest first, up to `most`, locked. The places stay valid: a
-- locked row does not move. SKIP LOCKED: a job that is locked is being settled, extended, removed, or taken back by another
-- call at this very moment, and that call decides. So this never waits and takes no part in any deadlock.
CREATE FUNCTION due_jobs(q text, which integer, moment double precision, most bigint) RETURNS tid[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT ctid FROM jobs WHERE queue = q AND state = which AND sort <= moment ORDER BY sort, id LIMIT greatest(0, most)
        FOR UPDATE SKIP LOCKED
    );
END $$;

-- Apply up to `most` due moves of a queue: starts and ends of leases, then ends of kept results, then lanes that a call
-- before left to be balanced. `spent`: how many; `shared`: what the queue shares with others, see lanes.sql. The caller
-- balances: once, after all that may wait for a lock of a job.
CREATE FUNCTION apply_due(
    q text, moment bigint, most bigint = 1000, OUT spent bigint, OUT touched text[], OUT shared text
) LANGUAGE plpgsql AS $$
DECLARE
    first record;  -- the first moment of each state
    which integer;
    due   tid[];
    lanes record;
BEGIN
    spent := 0;
    SELECT (SELECT sort FROM jobs WHERE queue = q AND state = 1 ORDER BY sort LIMIT 1) AS start,
           (SELECT sort FROM jobs WHERE queue = q AND state = 2 ORDER BY sort LIMIT 1) AS lease_end,
           (SELECT sort FROM jobs WHERE queue = q AND state = 4 ORDER BY sort LIMIT 1) AS over,
           (SELECT id FROM unbalanced WHERE queue = q ORDER BY id LIMIT 1) AS unbalanced,
           (SELECT r.shared FROM lane_rules r WHERE r.queue = q) AS shared
    INTO first;
    shared := first.shared;
    IF coalesce(least(first.start, first.lease_end, first.over) > moment, true) AND first.unbalanced IS NULL THEN
        RETURN;
    END IF;
    FOREACH which IN ARRAY CASE WHEN first.lease_end < first.start THEN '{2, 1, 4}' ELSE '{1, 2, 4}' END::integer[] LOOP
        due := due_jobs(q, which, moment, most - spent);
        CONTINUE WHEN cardinality(due) = 0;
        spent := spent + cardinality(due);
        CASE which
            WHEN 1 THEN touched := touched || start_jobs(q, due);
            WHEN 2 THEN touched := touched || end_leases(q, moment, due);
            WHEN 4 THEN PERFORM delete_jobs(ARRAY(SELECT id FROM jobs WHERE ctid = ANY (due)));
        END CASE;
    END LOOP;
    IF first.unbalanced IS NOT NULL THEN
        lanes := unbalanced_lanes(q, most - spent);
        spent := spent + lanes.cost;
        touched := touched || lanes.touched;
    END IF;
END $$;

-- Apply up to 1,000 due moves of a queue and of those that share limits with it, where a lease may end that has the place that
-- a job of this queue waits for. Answer: the lanes that the caller balances.
CREATE FUNCTION apply_group_due(q text, moment bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    own     record := apply_due(q, moment);
    unspent bigint := 1000 - own.spent;
    touched text[] := own.touched;
    due     record;
    other   text;
BEGIN
    IF own.shared IS NOT NULL THEN
        FOREACH other IN ARRAY group_of(q) LOOP
            CONTINUE WHEN other = q;
            due := apply_due(other, moment, unspent);
            unspent := unspent - due.spent;
            touched := touched || due.touched;
        END LOOP;
    END IF;
    RETURN touched;
END $$;

-- Delete up to `most` cancelled jobs of a queue that were kept until now. Only people see them, so a take, which applies
-- what is due at every call, does not look for them. Answer: how many.
CREATE FUNCTION forget_cancelled(q text, moment bigint, most bigint = 1000) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    due tid[] := due_jobs(q, 5, moment, most);
BEGIN
    IF cardinality(due) > 0 THEN
        PERFORM delete_jobs(ARRAY(SELECT id FROM jobs WHERE ctid = ANY (due)));
    END IF;
    RETURN cardinality(due);
END $$;

-- Apply what is due for a job that a call names, however much else is due.
CREATE FUNCTION apply_own_due(moment bigint, job_id bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    j record;
BEGIN
    SELECT ctid, queue, state INTO j FROM jobs
    WHERE id = job_id AND state IN (1, 2, 4, 5) AND sort <= moment FOR UPDATE SKIP LOCKED;
    CASE j.state
        WHEN 1 THEN RETURN start_jobs(j.queue, ARRAY[j.ctid]);
        WHEN 2 THEN RETURN end_leases(j.queue, moment, ARRAY[j.ctid]);
        WHEN 4, 5 THEN PERFORM delete_jobs(ARRAY[job_id]);
        ELSE NULL;
    END CASE;
    RETURN NULL;
END $$;

-- A job as people see it, in the order of JobInfo's fields; the lease's end only while it is taken.
CREATE TYPE job_info AS (
    id job_id, queue queue_name, state job_state, data bytea, rank finite, cost moment, key text, attempts counter,
    created_at moment, start_time moment, prev_start_time moment, waiters counter, keep_for duration, worker text,
    taken_at moment, lease_until bigint, ended_at moment, reason text, result bytea, tries counter, crashes counter,
    lane lane_name, turn finite
);

CREATE FUNCTION describe(j jobs) RETURNS SETOF job_info LANGUAGE sql STABLE AS $$
    SELECT j.id, j.queue, j.state, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time,
           j.prev_start_time, j.waiters, j.keep_for, j.worker, j.taken_at,
           CASE j.state WHEN 2 THEN j.sort::bigint END, j.ended_at, j.reason, j.result, j.tries, j.crashes, j.lane,
           CASE j.state WHEN 0 THEN nullif(j.sort, j.rank) END
$$;
