-- Reports: what a flow is told of the end or the revival of a job that has `reports_to`. The flow is the job in the queue
-- accoda.flows with that key, and a report is a waiter of it, attached as an enqueue would: see Report in accoda/model.py.
--
-- The call that ends the job stores the report in its own transaction, after all its other changes and together with its
-- follow-ups, in one store_jobs. So two calls that report to one flow at once are two calls that attach to one key: the
-- second waits for the first, then adds its waiter behind. And no circle of calls that wait for each other: each locks jobs
-- other than flows by id, then flows by id (lock_jobs), and only then inserts new keys, in their order (store_jobs). What is
-- out of turn is rare, and ends as there: a flow that appeared in between, and the flow of flows that are purged.

CREATE TYPE report AS (job bigint, flow text, wire bytea);

-- The report of a job to its flow. `size` is that of the result, -1 where there is none.
CREATE FUNCTION report(
    kind text, job bigint, run bigint, moment bigint, key text, flow text, size bigint = -1, body bytea = ''
) RETURNS report LANGUAGE plpgsql AS $$
BEGIN
    RETURN ROW(job, flow, convert_to(concat_ws(' ', kind, job, run, moment, size, key) || chr(10), 'UTF8') || body);
END $$;

-- Of a job that is done. A result of more than 32768 bytes (RESULT_IN_REPORT in accoda/model.py) is not in it.
CREATE FUNCTION report_done(job bigint, run bigint, moment bigint, key text, flow text, result bytea)
RETURNS report LANGUAGE plpgsql AS $$
DECLARE
    size bigint := coalesce(octet_length(result), -1);
BEGIN
    RETURN report('done', job, run, moment, key, flow, size, CASE WHEN size BETWEEN 0 AND 32768 THEN result ELSE '' END);
END $$;

-- What stores reports: jobs that attach to their flow, or make it.
CREATE FUNCTION jobs_that_report(reports report[]) RETURNS new_job[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW('accoda.flows', '', 0, NULL, NULL, 0, 0, r.flow, 2, r.wire, NULL, NULL)::new_job
        FROM unnest(reports) WITH ORDINALITY r ORDER BY r.ordinality
    );
END $$;

-- Store reports that come without follow-ups, and wake the callers that wait for them.
CREATE FUNCTION store_reports(moment bigint, reports report[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(reports) > 0 THEN
        PERFORM store_jobs(moment, jobs_that_report(reports), false);
        PERFORM notify_queues('{+accoda.flows}');
    END IF;
END $$;

-- The jobs that hold the keys of these flows, as far as they can be seen.
CREATE FUNCTION flows_named(names text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT held.id FROM (SELECT DISTINCT unnest(names) AS name) n, LATERAL (
            SELECT j.id FROM jobs j WHERE j.queue || '' = 'accoda.flows' AND j.key = n.name AND j.state < 3 OFFSET 0
        ) held
    );
END $$;
