-- stats, what people look at and put right, and documents.

-- Queues that ever had a job or a pause.
CREATE FUNCTION known_queues() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT queue FROM counts UNION SELECT queue FROM pauses
$$;

-- stats: the counts of every queue. The sums and the oldest job are read by one statement, so from one snapshot.
-- The oldest ready job is the one with the lowest id, since ids grow.
CREATE FUNCTION stats(
    at bigint, OUT moment bigint, OUT queue text, OUT ready bigint, OUT taken bigint, OUT delayed bigint, OUT dead bigint,
    OUT done bigint, OUT retried bigint, OUT buried bigint, OUT expired bigint, OUT paused boolean,
    OUT paused_until bigint, OUT oldest bigint
) RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    instant bigint := present(at);
BEGIN
    PERFORM apply_due(q, instant) FROM known_queues() AS q;
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

-- A job as people see it, in the order of JobInfo's fields; the lease's end only while it is taken.
CREATE FUNCTION describe(j jobs) RETURNS TABLE (
    id bigint, queue text, state smallint, data bytea, rank double precision, cost bigint, key text, attempts integer,
    created_at bigint, start_time bigint, prev_start_time bigint, waiters integer, keep_for double precision,
    worker text, taken_at bigint, lease_until bigint, ended_at bigint, reason text, result bytea
) LANGUAGE sql STABLE AS $$
    SELECT j.id, j.queue, j.state, j.data, j.rank, j.cost, j.key, j.attempts, j.created_at, j.start_time,
           j.prev_start_time, j.waiters, j.keep_for, j.worker, j.taken_at,
           CASE j.state WHEN 2 THEN j.sort::bigint END, j.ended_at, j.reason, j.result
$$;

-- find: all about one job.
CREATE FUNCTION find(at bigint, job_id bigint) RETURNS TABLE (
    id bigint, queue text, state smallint, data bytea, rank double precision, cost bigint, key text, attempts integer,
    created_at bigint, start_time bigint, prev_start_time bigint, waiters integer, keep_for double precision,
    worker text, taken_at bigint, lease_until bigint, ended_at bigint, reason text, result bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM apply_due(j.queue, present(at)) FROM jobs j WHERE j.id = job_id;
    RETURN QUERY SELECT d.* FROM jobs j, describe(j) d WHERE j.id = job_id;
END $$;

-- browse: a page of the jobs in a state, by id.
-- Taken jobs are in no index by id: they are few, so they are sorted.
CREATE FUNCTION browse(at bigint, q text, which smallint, after bigint, most bigint) RETURNS TABLE (
    id bigint, queue text, state smallint, data bytea, rank double precision, cost bigint, key text, attempts integer,
    created_at bigint, start_time bigint, prev_start_time bigint, waiters integer, keep_for double precision,
    worker text, taken_at bigint, lease_until bigint, ended_at bigint, reason text, result bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM apply_due(q, present(at));
    IF which = 2 THEN
        RETURN QUERY SELECT d.* FROM (
            SELECT * FROM (SELECT * FROM jobs j WHERE j.queue = q AND j.state = 2 OFFSET 0) t
            WHERE t.id > after ORDER BY t.id LIMIT most
        ) j, describe(j::jobs) d;
    ELSE
        RETURN QUERY SELECT d.* FROM (
            SELECT * FROM jobs j WHERE j.queue = q AND j.state = which AND j.state <> 2 AND j.id > after
            ORDER BY j.id LIMIT most
        ) j, describe(j::jobs) d;
    END IF;
END $$;

-- Delete jobs and their waiters, and count them out. Answer: how many there were.
CREATE FUNCTION delete_jobs(ids bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    r       record;
    removed bigint := 0;
    shared  bigint[];
BEGIN
    PERFORM lock_jobs(ids);
    shared := ARRAY(SELECT j.id FROM jobs j WHERE j.id = ANY (ids) AND j.waiters > 0);
    DELETE FROM waiters WHERE job = ANY (shared);
    FOR r IN
        WITH gone AS (DELETE FROM jobs j WHERE j.id = ANY (ids) RETURNING j.queue, j.state)
        SELECT queue, count(*) AS n, count(*) FILTER (WHERE state = 0) AS ready,
               count(*) FILTER (WHERE state = 1) AS delayed, count(*) FILTER (WHERE state = 2) AS taken,
               count(*) FILTER (WHERE state = 3) AS dead
        FROM gone GROUP BY queue
    LOOP
        PERFORM count_up(r.queue, -r.ready, -r.delayed, -r.taken, -r.dead);
        removed := removed + r.n;
    END LOOP;
    RETURN removed;
END $$;

-- remove: delete jobs in any state. Answer: how many.
CREATE FUNCTION remove(at bigint, ids bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM apply_due(q, present(at)) FROM (SELECT DISTINCT j.queue AS q FROM jobs j WHERE j.id = ANY (ids)) named;
    RETURN delete_jobs(ids);
END $$;

-- purge: delete all jobs of a queue in a state. Answer: how many.
CREATE FUNCTION purge(at bigint, q text, which smallint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    PERFORM apply_due(q, present(at));
    -- Locked here, so that each is still in that state when it is deleted.
    ids := ARRAY(SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = which ORDER BY j.id FOR UPDATE);
    RETURN delete_jobs(ids);
END $$;

-- revive: make dead jobs ready again, in the given order. Answer: the queue of each that was. One whose key is held by
-- another job stays dead: the unique index decides, also against one that is being enqueued at this moment.
CREATE FUNCTION revive(at bigint, ids bigint[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    moment  bigint := present(at);
    revived text[] := '{}';
    wanted  bigint;
    owner   text;
BEGIN
    PERFORM lock_jobs(ids);
    FOREACH wanted IN ARRAY ids LOOP
        BEGIN
            UPDATE jobs j
            SET state = 0, sort = j.rank, attempts = j.attempts + 1, prev_start_time = j.start_time, start_time = moment,
                ended_at = NULL
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

-- pause: hand out nothing of this queue until a moment (NULL: until it is resumed).
CREATE FUNCTION pause(q text, until bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pauses (queue, paused, paused_until) VALUES (q, true, until)
    ON CONFLICT (queue) DO UPDATE SET paused = true, paused_until = until
$$;

-- resume: end a pause.
CREATE FUNCTION resume(q text) RETURNS void LANGUAGE sql AS $$
    UPDATE pauses SET paused = false, paused_until = NULL WHERE queue = q
$$;

-- write: compare and set a document. Answer: its new version, or NULL and the version that was found instead.
-- Two writers of a new document: the unique index lets one insert, the other then finds the row and looks again.
CREATE FUNCTION write(
    at bigint, doc text, val bytea, expected bigint, ttl bigint, OUT version bigint, OUT found_version bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    moment  bigint;
    last    documents;
    expires bigint;
BEGIN
    LOOP
        SELECT * INTO last FROM documents d WHERE d.name = doc FOR UPDATE;
        moment := present(at);
        expires := moment + ttl;
        found_version := CASE WHEN last.expires_at <= moment THEN 0 ELSE coalesce(last.version, 0) END;
        IF expected <> found_version THEN
            version := NULL;
            RETURN;
        END IF;
        IF last.name IS NOT NULL THEN
            version := last.version + 1;
            UPDATE documents d SET value = val, version = write.version, expires_at = expires WHERE d.name = doc;
            EXIT;
        END IF;
        -- Read after the look above: whoever forgets a tombstone raises the floor in the same transaction.
        SELECT f.version + 1 INTO version FROM forgotten_documents f;
        INSERT INTO documents AS d (name, value, version, expires_at) VALUES (doc, val, write.version, expires)
        ON CONFLICT (name) DO NOTHING;
        EXIT WHEN FOUND;
    END LOOP;
    IF EXISTS (SELECT FROM documents d WHERE d.expires_at <= moment - 86400000) THEN
        PERFORM forget_documents(moment - 86400000);
    END IF;
END $$;

-- Drop tombstones of documents that expired before a moment.
CREATE FUNCTION forget_documents(before bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH old AS MATERIALIZED (
        SELECT t.name FROM documents t WHERE t.expires_at <= before ORDER BY t.name LIMIT 100 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM documents d USING old WHERE d.name = old.name RETURNING d.version
    )
    UPDATE forgotten_documents SET version = greatest(version, (SELECT max(g.version) FROM gone g));
END $$;

-- read: one document, unless its time to live is over.
CREATE FUNCTION read(at bigint, doc text, OUT value bytea, OUT version bigint, OUT expires_at bigint)
RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment bigint := present(at);
BEGIN
    RETURN QUERY
        SELECT d.value, d.version, d.expires_at FROM documents d
        WHERE d.name = doc AND coalesce(d.expires_at > moment, true);
END $$;

-- documents: those whose name is from `low` up to, but not including, `high`, by name.
CREATE FUNCTION documents(
    at bigint, low text, high text, OUT name text, OUT value bytea, OUT version bigint, OUT expires_at bigint
) RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment bigint := present(at);
BEGIN
    RETURN QUERY
        SELECT d.name, d.value, d.version, d.expires_at FROM documents d
        WHERE d.name >= low AND d.name < high AND coalesce(d.expires_at > moment, true)
        ORDER BY d.name;
END $$;
