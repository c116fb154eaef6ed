-- Documents: read, write and list them.

-- read: one document, unless its time to live is over.
CREATE FUNCTION read(at bigint, doc text, OUT value bytea, OUT version moment, OUT expires_at moment)
RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
    at bigint, low text, high text, OUT name text, OUT value bytea, OUT version moment, OUT expires_at moment
) RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    moment bigint := present(at);
BEGIN
    RETURN QUERY
        SELECT d.name, d.value, d.version, d.expires_at FROM documents d
        WHERE d.name >= low AND d.name < high AND coalesce(d.expires_at > moment, true)
        ORDER BY d.name;
END $$;

-- write: compare and set a document. Answer: its new version, or NULL and the version that was found instead.
-- Two writers of a new document: the unique index lets one insert, the other then finds the row and looks again.
CREATE FUNCTION write(
    at bigint, doc text, val bytea, expected bigint, ttl bigint, OUT version bigint, OUT found_version bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
        -- Read after the look above: the transaction that drops a tombstone raises the floor as well.
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
        SELECT t.name FROM documents t WHERE t.expires_at <= before ORDER BY t.expires_at LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM documents d USING old WHERE d.name = old.name RETURNING d.version
    )
    UPDATE forgotten_documents SET version = greatest(version, (SELECT max(g.version) FROM gone g));
END $$;
