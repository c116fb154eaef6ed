-- settle: apply each outcome whose lease is current, then enqueue the follow-ups of those accepted, in their order.
--   ids, runs, takes, queues   the leases, by id: `runs` are their attempts, `takes` the moments at which they were taken
--   outcomes                   one for each lease; empty where each is a Done without result and waiters
--   then_of, thens             the follow-ups: the place of the outcome that each belongs to, and the job
--   shared                     whether the outcomes are of several callers, which must not wait for each other's locks: a
--                              job that stays locked is then an error that changes nothing, and the client sends each
--                              call alone
-- Answer: a verdict for each outcome: 0 accepted, 1 lost, 2 grown, 3 cancelled; NULL: all accepted.
--
-- Fencing: a statement that changes a job finds it by its token: id, attempts and taken_at. Under READ COMMITTED a row that
-- was changed after our look is looked at again once its lock is ours, so a lease that ended or was settled meanwhile is
-- refused. In a database that was put back to an older state, ids and attempts come again; the moment of the take differs.
-- A call that is one statement locks its jobs as it goes, lowest id first. Any other locks them all before, together with
-- the holders of the follow-ups' keys, in the one order of lock_jobs; so no two calls wait for each other.

CREATE TYPE outcome AS (
    kind    smallint,          -- 0 done, 1 retry, 2 bury
    waiters bigint,            -- done: how many were seen; NULL: do not check
    delay   bigint,            -- retry: in ms, or
    start   bigint,            --        the moment
    rank    double precision,  --        a new one, or NULL
    counts  boolean,           --        whether it was a try
    reason  text,              -- retry, bury
    result  bytea              -- done
);

CREATE FUNCTION settle(
    at bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[], then_of integer[],
    thens new_job[], shared boolean
) RETURNS smallint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    moment   bigint;
    verdicts smallint[];
    accepted new_job[];
BEGIN
    IF shared THEN
        PERFORM set_config('lock_timeout', '50ms', true);
    END IF;
    IF cardinality(outcomes) + cardinality(thens) > 0 THEN
        PERFORM lock_jobs(ids || key_holders(thens));
    END IF;
    moment := present(at);
    IF EXISTS (SELECT FROM generate_subscripts(ids, 1) n WHERE ids[n] = ids[n + 1]) THEN
        -- Several outcomes for one job: one after the other, as if each had come by itself.
        FOR n IN 1 .. cardinality(ids) LOOP
            verdicts := verdicts || apply_outcomes(moment, ids[n:n], runs[n:n], takes[n:n], queues[n:n], outcomes[n:n]);
        END LOOP;
    ELSE
        verdicts := apply_outcomes(moment, ids, runs, takes, queues, outcomes);
    END IF;
    IF cardinality(thens) > 0 THEN
        accepted := ARRAY(SELECT thens[n] FROM generate_subscripts(thens, 1) n WHERE verdicts[then_of[n]] = 0 ORDER BY n);
        PERFORM store_jobs(moment, accepted, false);
    END IF;
    RETURN nullif(verdicts, array_fill(0::smallint, ARRAY[cardinality(ids)]));
END $$;

-- Apply outcomes, each for another job. Answer: their verdicts.
CREATE FUNCTION apply_outcomes(
    moment bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[]
) RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
    applied bigint[] := '{}';
    r       record;
BEGIN
    IF cardinality(outcomes) = 0 THEN
        applied := finish_jobs(moment, ids, runs, takes, queues, outcomes);
    END IF;
    FOR r IN
        SELECT outcomes[n].kind AS kind, array_agg(ids[n] ORDER BY n) AS ids, array_agg(runs[n] ORDER BY n) AS runs,
               array_agg(takes[n] ORDER BY n) AS takes, array_agg(queues[n] ORDER BY n) AS queues,
               array_agg(outcomes[n] ORDER BY n) AS outcomes
        FROM generate_subscripts(outcomes, 1) n GROUP BY outcomes[n].kind
    LOOP
        applied := applied || CASE r.kind
            WHEN 0 THEN finish_jobs(moment, r.ids, r.runs, r.takes, r.queues, r.outcomes)
            WHEN 1 THEN retry_jobs(moment, r.ids, r.runs, r.takes, r.queues, r.outcomes)
            ELSE bury_jobs(moment, r.ids, r.runs, r.takes, r.queues, r.outcomes)
        END;
    END LOOP;
    IF cardinality(applied) = cardinality(ids) THEN
        RETURN array_fill(0::smallint, ARRAY[cardinality(ids)]);
    END IF;
    RETURN ARRAY(
        SELECT CASE WHEN ids[n] IN (SELECT unnest(applied)) THEN 0::smallint
                    ELSE why_refused(moment, ids[n], runs[n], takes[n], queues[n]) END
        FROM generate_subscripts(ids, 1) n ORDER BY n
    );
END $$;

-- Done: delete the jobs, or keep them with their results. Answer: the ids of those accepted.
CREATE FUNCTION finish_jobs(
    moment bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    accepted bigint[] := '{}';
    r        record;
BEGIN
    FOR r IN
        WITH gone AS (
            DELETE FROM jobs j
            WHERE j.id = ANY (ids) AND j.attempts = runs[width_bucket(j.id, ids)]
              AND j.taken_at = takes[width_bucket(j.id, ids)] AND j.queue = queues[width_bucket(j.id, ids)]
              AND j.state + 0 = 2 AND j.sort > moment AND j.keep_for = 0
              AND coalesce(j.waiters <= outcomes[width_bucket(j.id, ids)].waiters, true)
            RETURNING j.id, j.queue, j.waiters
        )
        SELECT queue, array_agg(id) AS ids, array_agg(id) FILTER (WHERE waiters > 0) AS shared FROM gone GROUP BY queue
    LOOP
        DELETE FROM waiters WHERE job = ANY (r.shared);
        PERFORM add_counts(r.queue, 0, 0, -cardinality(r.ids), d_done => cardinality(r.ids));
        accepted := accepted || r.ids;
    END LOOP;
    IF cardinality(accepted) = cardinality(ids) THEN
        RETURN accepted;
    END IF;
    FOR r IN
        WITH kept AS (
            UPDATE jobs j
            SET state = 4, sort = moment + round(j.keep_for * 1000), ended_at = moment,
                result = outcomes[width_bucket(j.id, ids)].result
            WHERE j.id = ANY (ids) AND j.attempts = runs[width_bucket(j.id, ids)]
              AND j.taken_at = takes[width_bucket(j.id, ids)] AND j.queue = queues[width_bucket(j.id, ids)]
              AND j.state + 0 = 2 AND j.sort > moment AND j.keep_for > 0
              AND coalesce(j.waiters <= outcomes[width_bucket(j.id, ids)].waiters, true)
            RETURNING j.id, j.queue
        )
        SELECT queue, array_agg(id) AS ids FROM kept GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, 0, 0, -cardinality(r.ids), d_done => cardinality(r.ids));
        accepted := accepted || r.ids;
    END LOOP;
    RETURN accepted;
END $$;

-- Retry: the jobs wait again. Answer: the ids of those accepted.
CREATE FUNCTION retry_jobs(
    moment bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    starts   bigint[] := ARRAY(
        SELECT greatest(moment, coalesce(o.start, moment + o.delay)) FROM unnest(outcomes) WITH ORDINALITY o ORDER BY ordinality
    );
    accepted bigint[] := '{}';
    r        record;
BEGIN
    FOR r IN
        WITH back AS (
            UPDATE jobs j
            SET state = (starts[width_bucket(j.id, ids)] > moment)::int,
                sort = CASE WHEN starts[width_bucket(j.id, ids)] > moment THEN starts[width_bucket(j.id, ids)]
                            ELSE coalesce(outcomes[width_bucket(j.id, ids)].rank, j.rank) END,
                rank = coalesce(outcomes[width_bucket(j.id, ids)].rank, j.rank),
                attempts = j.attempts + 1, tries = j.tries + outcomes[width_bucket(j.id, ids)].counts::int,
                prev_start_time = j.start_time, start_time = starts[width_bucket(j.id, ids)],
                reason = outcomes[width_bucket(j.id, ids)].reason
            WHERE j.id = ANY (ids) AND j.attempts = runs[width_bucket(j.id, ids)]
              AND j.taken_at = takes[width_bucket(j.id, ids)] AND j.queue = queues[width_bucket(j.id, ids)]
              AND j.state + 0 = 2 AND j.sort > moment
            RETURNING j.id, j.queue, j.state
        )
        SELECT queue, array_agg(id) AS ids, count(*) FILTER (WHERE state = 1) AS delayed FROM back GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, cardinality(r.ids) - r.delayed, r.delayed, -cardinality(r.ids),
                           d_retried => cardinality(r.ids));
        accepted := accepted || r.ids;
    END LOOP;
    RETURN accepted;
END $$;

-- Bury: the jobs are dead. Answer: the ids of those accepted.
CREATE FUNCTION bury_jobs(
    moment bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    accepted bigint[] := '{}';
    r        record;
BEGIN
    FOR r IN
        WITH dead AS (
            UPDATE jobs j
            SET state = 3, sort = moment, ended_at = moment, reason = outcomes[width_bucket(j.id, ids)].reason
            WHERE j.id = ANY (ids) AND j.attempts = runs[width_bucket(j.id, ids)]
              AND j.taken_at = takes[width_bucket(j.id, ids)] AND j.queue = queues[width_bucket(j.id, ids)]
              AND j.state + 0 = 2 AND j.sort > moment
            RETURNING j.id, j.queue
        )
        SELECT queue, array_agg(id) AS ids FROM dead GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, 0, 0, -cardinality(r.ids), cardinality(r.ids), d_buried => cardinality(r.ids));
        accepted := accepted || r.ids;
    END LOOP;
    RETURN accepted;
END $$;
