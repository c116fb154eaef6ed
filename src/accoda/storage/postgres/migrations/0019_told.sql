-- One job, and the news of it, for workers that wait: they hear of it, and see it, before the disk has it. Its producer
-- hears of it after. So the way of a job to an idle worker leads by the disk once, at the take, and not twice.
--
-- What is acknowledged survives a crash: the second commit waits until the server's log is on the disk (and with a
-- synchronous replica, there) up to its own record, and the first one's is before it. It needs a record of its own for
-- that, a message that nobody reads; it waits as its session is set to. Who takes the job in between is answered after a
-- commit that waits, too, and whose record is later still. So what a crash in between takes back is a job of which nobody
-- was told but by a hint to look.
--
-- A procedure that commits may neither have settings of its own nor its owner's rights. It needs none: what it calls has.
DO $$
BEGIN
    EXECUTE format($procedure$
        CREATE PROCEDURE enqueue_told(
            at bigint, q text, content bytea, its_rank double precision, its_cost bigint, its_keep double precision,
            news text, INOUT made bigint
        ) LANGUAGE plpgsql AS $body$
        BEGIN
            PERFORM pg_catalog.set_config('synchronous_commit', 'off', true);
            made := %1$I.enqueue_one(at, q, content, its_rank, its_cost, its_keep, news);
            COMMIT;
            PERFORM pg_catalog.pg_logical_emit_message(true, 'accoda', '');
        END $body$
    $procedure$, current_schema());
END $$;
