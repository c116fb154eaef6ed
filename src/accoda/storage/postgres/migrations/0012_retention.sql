-- Purge by age and number, and documents whose numbers cannot be read.

-- Kept results by their end. Only they are in it, so no other job pays for it; dead jobs are sorted by their end in
-- jobs_line already.
CREATE INDEX jobs_ended ON jobs (queue, ended_at, id) WHERE state = 4;

-- purge: delete jobs of a queue in a state, at most so many: dead and done by their end, before a moment, others by id,
-- created before it. NULL: all. Ids grow with time: of those that wait, the first by id are the oldest, so no others
-- need be looked at. A job that is locked is being changed by another call, and is passed over.
CREATE FUNCTION purge(at bigint, q text, which smallint, before bigint, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[];
BEGIN
    PERFORM apply_due(q, present(at), 1000);
    IF before IS NULL AND most IS NULL THEN
        -- Locked here, so that each is still in that state when it is deleted.
        ids := ARRAY(SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = which ORDER BY j.id FOR UPDATE);
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
    ELSIF which = 2 THEN
        ids := ARRAY(
            SELECT t.id FROM (SELECT * FROM jobs j WHERE j.queue = q AND j.state = 2 OFFSET 0) t
            WHERE coalesce(t.created_at < before, true) ORDER BY t.id LIMIT most
        );
        PERFORM lock_jobs(ids);
        ids := ARRAY(SELECT j.id FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = 2);
    ELSE
        ids := ARRAY(
            SELECT t.id FROM (
                SELECT j.id, j.created_at FROM jobs j WHERE j.queue = q AND j.state = which AND j.state <> 2
                ORDER BY j.id LIMIT most FOR UPDATE SKIP LOCKED
            ) t WHERE coalesce(t.created_at < before, true)
        );
    END IF;
    RETURN delete_jobs(ids);
END $$;

CREATE OR REPLACE FUNCTION purge(at bigint, q text, which smallint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN purge(at, q, which, NULL, NULL);
END $$;

-- As in 0006_people. A document whose numbers nobody wrote counts as none, and begins at a version that nobody has seen.
CREATE OR REPLACE FUNCTION write(
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
        found_version := CASE WHEN last.expires_at <= moment OR NOT is_page(last.version, last.expires_at) THEN 0
                              ELSE coalesce(last.version, 0) END;
        IF expected <> found_version THEN
            version := NULL;
            RETURN;
        END IF;
        IF last.name IS NOT NULL THEN
            version := CASE WHEN is_page(last.version, NULL) THEN last.version + 1 ELSE 1073741824 END;
            UPDATE documents d SET value = val, version = write.version, expires_at = expires WHERE d.name = doc;
            EXIT;
        END IF;
        -- Read after the look above: whoever forgets a tombstone raises the floor in the same transaction.
        SELECT coalesce(max(f.version), 0) + 1 INTO version FROM forgotten_documents f WHERE is_number(f.version);
        INSERT INTO documents AS d (name, value, version, expires_at) VALUES (doc, val, write.version, expires)
        ON CONFLICT (name) DO NOTHING;
        EXIT WHEN FOUND;
    END LOOP;
    IF EXISTS (SELECT FROM documents d WHERE d.expires_at <= moment - 86400000) THEN
        PERFORM forget_documents(moment - 86400000);
    END IF;
END $$;

CREATE FUNCTION is_page(version bigint, expires_at bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(version BETWEEN 1 AND 18014398509481983, true)
       AND coalesce(expires_at BETWEEN 0 AND 18014398509481983, true)
$$;

-- As in 0006_people, in the order of the index, and never above a version that could be.
CREATE OR REPLACE FUNCTION forget_documents(before bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH old AS MATERIALIZED (
        SELECT t.name FROM documents t WHERE t.expires_at <= before ORDER BY t.expires_at LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM documents d USING old WHERE d.name = old.name RETURNING d.version
    )
    UPDATE forgotten_documents
    SET version = greatest(version, (SELECT max(g.version) FROM gone g WHERE is_number(g.version)));
END $$;

CREATE OR REPLACE FUNCTION read(at bigint, doc text, OUT value bytea, OUT version bigint, OUT expires_at bigint)
RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment bigint := present(at);
BEGIN
    RETURN QUERY
        SELECT d.value, d.version, d.expires_at FROM documents d
        WHERE d.name = doc AND coalesce(d.expires_at > moment, true) AND is_page(d.version, d.expires_at);
END $$;

CREATE OR REPLACE FUNCTION documents(
    at bigint, low text, high text, OUT name text, OUT value bytea, OUT version bigint, OUT expires_at bigint
) RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment bigint := present(at);
BEGIN
    RETURN QUERY
        SELECT d.name, d.value, d.version, d.expires_at FROM documents d
        WHERE d.name >= low AND d.name < high AND coalesce(d.expires_at > moment, true)
          AND is_page(d.version, d.expires_at)
        ORDER BY d.name;
END $$;

-- A function that is made anew has lost its settings: those of 0007_settings again.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
          AND p.proname IN ('take', 'look', 'rerank', 'stats', 'find', 'browse', 'remove', 'purge', 'revive', 'write',
                            'read', 'documents')
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
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN ('take', 'look', 'stats', 'browse')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', verb);
    END LOOP;
END $$;
