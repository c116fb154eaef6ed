-- Settings of the functions that clients call; the steps below them inherit these.
--   SECURITY DEFINER: they work on the tables with the rights of the schema's owner. A producer or worker needs no right
--   to any table, only USAGE of the schema.
--   search_path: so that they mean this schema's tables, whoever calls, in whatever transaction.
--   planner: every statement here is meant to walk an index. The tables grow from nothing to millions and back faster
--   than statistics follow, and a plan made for an empty table (scan it all) would be the end of a full one.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
          AND p.proname IN ('enqueue', 'take', 'give_back', 'look', 'ring', 'settle', 'finish', 'extend', 'rerank',
                            'waiters_of', 'stats', 'find', 'browse', 'remove', 'purge', 'revive', 'pause', 'resume',
                            'write', 'read', 'documents')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', verb);
        EXECUTE format('ALTER FUNCTION %s SET search_path FROM CURRENT', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', verb);
        EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', verb);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', verb);
    END LOOP;
    -- These read a line in the order of an index; all their other steps are found by equality.
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN ('take', 'look', 'stats', 'browse')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', verb);
    END LOOP;
END $$;
