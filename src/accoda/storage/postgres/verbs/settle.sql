-- settle: apply each outcome whose lease is current, then enqueue the follow-ups of those accepted, in their order, then
-- report the jobs that ended to their flows, in the order of the outcomes.
--   ids, runs, takes, queues   the leases, by id: `runs` are their attempts, `takes` the moments at which they were taken
--   outcomes                   one for each lease; empty where each is a Done without result and waiters
--   turns                      the order in which the caller has them; empty where it is that of the ids
--   then_of, thens             the follow-ups: the place of the outcome that each belongs to, and the job
--   shared                     whether the outcomes are of several callers, which must not wait for each other's locks: a
--                              job that stays locked is then an error that changes nothing, and the client sends each
--                              call alone
-- Answer: a verdict for each outcome: 0 accepted, 1 lost, 2 grown, 3 cancelled; NULL: all accepted. `news`: what the client
-- then notifies beside the queues of retried jobs and follow-ups: that a flow has a report, and where the end of a job let
-- others in.
--
-- Fencing: a statement that changes a job finds it by its token: id, attempts and taken_at. Under READ COMMITTED a row that
-- was changed after our look is looked at again once its lock is ours, so a lease that ended or was settled meanwhile is
-- refused. In a database that was put back to an older state, ids and attempts come again; the moment of the take differs.
-- A call that is one statement locks its jobs as it goes, lowest id first, and then the flows that they report to. Any other,
-- also one about flows, locks them all before, together with the holders of the follow-ups' keys and the flows, in the same
-- order, that of lock_jobs; so no two calls wait for each other.

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
    at bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[], turns integer[],
    then_of integer[], thens new_job[], shared boolean, OUT verdicts smallint[], OUT news text[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    moment   bigint;
    told     report[];
    touched  text[];
    accepted new_job[];
    r        record;
BEGIN
    IF shared THEN
        PERFORM set_config('lock_timeout', '50ms', true);
    END IF;
    IF cardinality(outcomes) + cardinality(thens) > 0 OR 'accoda.flows' = ANY (queues) THEN
        PERFORM lock_jobs(ids || key_holders(thens), true);
    END IF;
    moment := present(at);
    IF EXISTS (SELECT FROM generate_subscripts(ids, 1) n WHERE ids[n] = ids[n + 1]) THEN
        -- Several outcomes for one job: one after the other, as if each had come by itself.
        FOR n IN 1 .. cardinality(ids) LOOP
            r := apply_outcomes(moment, ids[n:n], runs[n:n], takes[n:n], queues[n:n], outcomes[n:n]);
            verdicts := verdicts || r.verdicts;
            told := told || r.reports;
            touched := touched || r.touched;
        END LOOP;
    ELSE
        r := apply_outcomes(moment, ids, runs, takes, queues, outcomes);
        verdicts := r.verdicts;
        told := r.reports;
        touched := r.touched;
    END IF;
    IF cardinality(thens) > 0 OR told IS NOT NULL THEN
        accepted := ARRAY(SELECT thens[n] FROM generate_subscripts(thens, 1) n WHERE verdicts[then_of[n]] = 0 ORDER BY n);
        -- One call, so that all holders of keys are locked before the first new key is inserted. Under a key, what comes
        -- first is stored first: a flow finds what its job left for it before it hears of the end.
        r := store_jobs(moment, accepted || jobs_that_report(in_turn(told, ids, verdicts, turns)), false);
        touched := touched || r.touched;
    END IF;
    IF touched IS NOT NULL THEN
        IF shared THEN
            PERFORM set_config('lock_timeout', '0', true);  -- nobody holds a lane for long
        END IF;
        news := balance(touched);
    END IF;
    IF told IS NOT NULL THEN
        news := news || '+accoda.flows'::text;
    END IF;
    verdicts := nullif(verdicts, array_fill(0::smallint, ARRAY[cardinality(ids)]));
END $$;

-- Reports in the order of the outcomes that they are of: the one accepted outcome of each job.
CREATE FUNCTION in_turn(reports report[], ids bigint[], verdicts smallint[], turns integer[])
RETURNS report[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(r.job, r.flow, r.wire)::report
        FROM unnest(ids, verdicts, turns) WITH ORDINALITY o(id, verdict, turn, place) JOIN unnest(reports) r ON r.job = o.id
        WHERE o.verdict = 0 ORDER BY coalesce(o.turn, o.place)
    );
END $$;

-- Apply outcomes, each for another job. Answer: their verdicts, the reports of those that ended, and the lanes to balance;
-- NULL: none.
CREATE FUNCTION apply_outcomes(
    moment bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[],
    OUT verdicts smallint[], OUT reports report[], OUT touched text[]
) LANGUAGE plpgsql AS $$
DECLARE
    applied bigint[] := '{}';
    r       record;
    ended   record;
BEGIN
    IF cardinality(outcomes) = 0 THEN
        ended := finish_jobs(moment, ids, runs, takes, queues, outcomes);
        applied := ended.accepted;
        reports := ended.reports;
        touched := ended.touched;
    END IF;
    FOR r IN
        SELECT outcomes[n].kind AS kind, array_agg(ids[n] ORDER BY n) AS ids, array_agg(runs[n] ORDER BY n) AS runs,
               array_agg(takes[n] ORDER BY n) AS takes, array_agg(queues[n] ORDER BY n) AS queues,
               array_agg(outcomes[n] ORDER BY n) AS outcomes
        FROM generate_subscripts(outcomes, 1) n GROUP BY outcomes[n].kind
    LOOP
        IF r.kind = 1 THEN
            ended := retry_jobs(moment, r.ids, r.runs, r.takes, r.queues, r.outcomes);
        ELSIF r.kind = 0 THEN
            ended := finish_jobs(moment, r.ids, r.runs, r.takes, r.queues, r.outcomes);
        ELSE
            ended := bury_jobs(moment, r.ids, r.runs, r.takes, r.queues, r.outcomes);
        END IF;
        applied := applied || ended.accepted;
        reports := reports || ended.reports;
        touched := touched || ended.touched;
    END LOOP;
    IF cardinality(applied) = cardinality(ids) THEN
        verdicts := array_fill(0::smallint, ARRAY[cardinality(ids)]);
        RETURN;
    END IF;
    verdicts := ARRAY(
        SELECT CASE WHEN ids[n] IN (SELECT unnest(applied)) THEN 0::smallint
                    ELSE why_refused(moment, ids[n], runs[n], takes[n], queues[n]) END
        FROM generate_subscripts(ids, 1) n ORDER BY n
    );
END $$;

-- Done: delete the jobs, or keep them with their results. Answer: the ids of those accepted, their reports, and the lanes to
-- balance; NULL: none.
CREATE FUNCTION finish_jobs(
    moment bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[],
    OUT accepted bigint[], OUT reports report[], OUT touched text[]
) LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    accepted := '{}';
    FOR r IN
        WITH gone AS (
            DELETE FROM jobs j
            WHERE j.id = ANY (ids) AND j.attempts = runs[width_bucket(j.id, ids)]
              AND j.taken_at = takes[width_bucket(j.id, ids)] AND j.queue = queues[width_bucket(j.id, ids)]
              AND j.state + 0 = 2 AND j.sort > moment AND j.keep_for = 0
              AND coalesce(j.waiters <= outcomes[width_bucket(j.id, ids)].waiters, true)
            RETURNING j.id, j.queue, j.waiters, j.attempts, j.key, j.reports_to, j.lane
        )
        SELECT queue, array_agg(id) AS ids, array_agg(id) FILTER (WHERE waiters > 0) AS shared,
               array_agg(report_done(id, attempts, moment, key, reports_to, outcomes[width_bucket(id, ids)].result))
               FILTER (WHERE reports_to IS NOT NULL) AS reports,
               array_agg('-' || queue || '/' || lane) FILTER (WHERE lane IS NOT NULL) AS lanes,
               (SELECT ARRAY[l.queue || '/'] FROM lane_rules l WHERE l.queue = gone.queue AND l.total IS NOT NULL) AS with_total
        FROM gone GROUP BY queue
    LOOP
        DELETE FROM waiters WHERE job = ANY (r.shared);
        PERFORM add_counts(r.queue, 0, 0, -cardinality(r.ids), d_done => cardinality(r.ids));
        accepted := accepted || r.ids;
        reports := reports || r.reports;
        touched := touched || r.lanes || r.with_total;
    END LOOP;
    IF cardinality(accepted) = cardinality(ids) THEN
        RETURN;
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
            RETURNING j.id, j.queue, j.attempts, j.key, j.reports_to, j.result, j.lane
        )
        SELECT queue, array_agg(id) AS ids, array_agg(report_done(id, attempts, moment, key, reports_to, result))
               FILTER (WHERE reports_to IS NOT NULL) AS reports,
               array_agg('-' || queue || '/' || lane) FILTER (WHERE lane IS NOT NULL) AS lanes,
               (SELECT ARRAY[l.queue || '/'] FROM lane_rules l WHERE l.queue = kept.queue AND l.total IS NOT NULL) AS with_total
        FROM kept GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, 0, 0, -cardinality(r.ids), d_done => cardinality(r.ids));
        accepted := accepted || r.ids;
        reports := reports || r.reports;
        touched := touched || r.lanes || r.with_total;
    END LOOP;
END $$;

-- Retry: the jobs wait again. Answer: as that of finish_jobs; there are no reports.
CREATE FUNCTION retry_jobs(
    moment bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[],
    OUT accepted bigint[], OUT reports report[], OUT touched text[]
) LANGUAGE plpgsql AS $$
DECLARE
    starts   bigint[] := ARRAY(
        SELECT greatest(moment, coalesce(o.start, moment + o.delay)) FROM unnest(outcomes) WITH ORDINALITY o ORDER BY ordinality
    );
    r        record;
BEGIN
    accepted := '{}';
    FOR r IN
        WITH back AS (
            UPDATE jobs j
            SET state = CASE WHEN starts[width_bucket(j.id, ids)] > moment THEN 1 WHEN j.lane IS NULL THEN 0
                             ELSE entry_state(j.queue) END,
                sort = CASE WHEN starts[width_bucket(j.id, ids)] > moment THEN starts[width_bucket(j.id, ids)]
                            ELSE coalesce(outcomes[width_bucket(j.id, ids)].rank, j.rank) END,
                rank = coalesce(outcomes[width_bucket(j.id, ids)].rank, j.rank),
                attempts = j.attempts + 1, tries = j.tries + outcomes[width_bucket(j.id, ids)].counts::int,
                prev_start_time = j.start_time, start_time = starts[width_bucket(j.id, ids)],
                reason = outcomes[width_bucket(j.id, ids)].reason
            WHERE j.id = ANY (ids) AND j.attempts = runs[width_bucket(j.id, ids)]
              AND j.taken_at = takes[width_bucket(j.id, ids)] AND j.queue = queues[width_bucket(j.id, ids)]
              AND j.state + 0 = 2 AND j.sort > moment
            RETURNING j.id, j.queue, j.state, j.lane
        )
        SELECT queue, array_agg(id) AS ids, count(*) FILTER (WHERE state = 1) AS delayed,
               count(*) FILTER (WHERE state = -1) AS held,
               array_agg(queue || '/' || lane) FILTER (WHERE lane IS NOT NULL) AS lanes
        FROM back GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, cardinality(r.ids) - r.delayed - r.held, r.delayed, -cardinality(r.ids),
                           d_retried => cardinality(r.ids), d_held => r.held);
        accepted := accepted || r.ids;
        touched := touched || r.lanes;
    END LOOP;
END $$;

-- Bury: the jobs are dead. Answer: as that of finish_jobs.
CREATE FUNCTION bury_jobs(
    moment bigint, ids bigint[], runs bigint[], takes bigint[], queues text[], outcomes outcome[],
    OUT accepted bigint[], OUT reports report[], OUT touched text[]
) LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    accepted := '{}';
    FOR r IN
        WITH dead AS (
            UPDATE jobs j
            SET state = 3, sort = moment, ended_at = moment, reason = outcomes[width_bucket(j.id, ids)].reason
            WHERE j.id = ANY (ids) AND j.attempts = runs[width_bucket(j.id, ids)]
              AND j.taken_at = takes[width_bucket(j.id, ids)] AND j.queue = queues[width_bucket(j.id, ids)]
              AND j.state + 0 = 2 AND j.sort > moment
            RETURNING j.id, j.queue, j.attempts, j.key, j.reports_to, j.reason, j.lane
        )
        SELECT queue, array_agg(id) AS ids,
               array_agg(report('dead', id, attempts, moment, key, reports_to, body => convert_to(reason, 'UTF8')))
               FILTER (WHERE reports_to IS NOT NULL) AS reports,
               array_agg('-' || queue || '/' || lane) FILTER (WHERE lane IS NOT NULL) AS lanes,
               (SELECT ARRAY[l.queue || '/'] FROM lane_rules l WHERE l.queue = dead.queue AND l.total IS NOT NULL) AS with_total
        FROM dead GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, 0, 0, -cardinality(r.ids), cardinality(r.ids), d_buried => cardinality(r.ids));
        accepted := accepted || r.ids;
        reports := reports || r.reports;
        touched := touched || r.lanes || r.with_total;
    END LOOP;
END $$;
