-- The calls that are made for every job leave the planner's settings (0007_settings) to the session: to set and unset
-- four of them took a fifteenth of the time of such a call. A client of this version sets them when it connects. `enqueue`
-- keeps its own: it also runs in sessions of others. Who connected before goes on, with plans that trust the statistics.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = current_schema()::regnamespace
          AND p.proname IN ('enqueue_one', 'take', 'finish', 'finish_plain', 'glance')
    LOOP
        EXECUTE format('ALTER FUNCTION %s RESET enable_seqscan', verb);
        EXECUTE format('ALTER FUNCTION %s RESET enable_bitmapscan', verb);
        EXECUTE format('ALTER FUNCTION %s RESET plan_cache_mode', verb);
        EXECUTE format('ALTER FUNCTION %s RESET jit', verb);
    END LOOP;
END $$;
