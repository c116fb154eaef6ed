-- settle, extend, rerank, waiters.

-- Which outcomes are accepted: 0 accepted, 1 lost, 2 grown, in order. The jobs are locked.
-- Of several outcomes for one lease the first good one counts: those before it were refused as grown, those after it
-- find the lease lost.
CREATE FUNCTION judge(
    moment double precision, ids bigint[], tokens bigint[], queues text[], kinds smallint[], seen integer[]
) RETURNS smallint[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT array_agg(CASE WHEN ord = good THEN 0 WHEN held AND coalesce(ord < good, true) THEN 2 ELSE 1 END::smallint
                         ORDER BY ord)
        FROM (
            SELECT ord, held, min(ord) FILTER (WHERE held AND NOT grown) OVER (PARTITION BY id) AS good
            FROM (
                SELECT u.ord, u.id, j.id IS NOT NULL AS held,
                       coalesce(u.kind = 0 AND j.waiters > u.seen, false) AS grown
                FROM unnest(ids, tokens, queues, kinds, seen) WITH ORDINALITY AS u(id, token, queue, kind, seen, ord)
                LEFT JOIN LATERAL (
                    SELECT j.id, j.attempts, j.queue, j.state, j.sort, j.waiters FROM jobs j WHERE j.id = u.id OFFSET 0
                ) j ON j.attempts = u.token AND j.queue = u.queue AND j.state = 2 AND j.sort > moment
            ) met
        ) judged
    );
END $$;

-- Apply accepted outcomes of one kind each. The ids ascend; each job is there once.
CREATE FUNCTION finish_jobs(moment bigint, ids bigint[], results bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    shared bigint[];
BEGIN
    UPDATE jobs j
    SET state = 4, sort = moment + round(j.keep_for * 1000), result = results[width_bucket(j.id, ids)], ended_at = moment
    WHERE j.id = ANY (ids) AND j.keep_for > 0;
    WITH gone AS (DELETE FROM jobs j WHERE j.id = ANY (ids) AND j.keep_for = 0 RETURNING j.id, j.waiters)
    SELECT array_agg(g.id) INTO shared FROM gone g WHERE g.waiters > 0;
    DELETE FROM waiters WHERE job = ANY (shared);
END $$;

CREATE FUNCTION retry_jobs(moment bigint, ids bigint[], starts bigint[], reasons text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE jobs j
    SET state = (starts[width_bucket(j.id, ids)] > moment)::int,
        sort = CASE WHEN starts[width_bucket(j.id, ids)] > moment THEN starts[width_bucket(j.id, ids)] ELSE j.rank END,
        attempts = j.attempts + 1, prev_start_time = j.start_time, start_time = starts[width_bucket(j.id, ids)],
        reason = reasons[width_bucket(j.id, ids)]
    WHERE j.id = ANY (ids);
END $$;

CREATE FUNCTION bury_jobs(moment bigint, ids bigint[], reasons text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE jobs j SET state = 3, sort = moment, ended_at = moment, reason = reasons[width_bucket(j.id, ids)]
    WHERE j.id = ANY (ids);
END $$;

-- Apply the outcomes whose verdict is 0 and count them.
CREATE FUNCTION apply_outcomes(
    moment bigint, verdicts smallint[], ids bigint[], queues text[], kinds smallint[], delays bigint[], starts bigint[],
    reasons text[], results bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    FOR r IN
        SELECT u.kind, array_agg(u.id ORDER BY u.id) AS ids, array_agg(u.result ORDER BY u.id) AS results,
               array_agg(u.reason ORDER BY u.id) AS reasons,
               array_agg(greatest(moment, coalesce(u.start, moment + u.delay, moment)) ORDER BY u.id) AS starts
        FROM unnest(verdicts, ids, kinds, delays, starts, reasons, results)
             AS u(verdict, id, kind, delay, start, reason, result)
        WHERE u.verdict = 0 GROUP BY u.kind
    LOOP
        CASE r.kind
            WHEN 0 THEN PERFORM finish_jobs(moment, r.ids, r.results);
            WHEN 1 THEN PERFORM retry_jobs(moment, r.ids, r.starts, r.reasons);
            ELSE PERFORM bury_jobs(moment, r.ids, r.reasons);
        END CASE;
    END LOOP;
    FOR r IN
        SELECT u.queue, count(*) AS n, count(*) FILTER (WHERE u.kind = 0) AS done,
               count(*) FILTER (WHERE u.kind = 1) AS retried, count(*) FILTER (WHERE u.kind = 2) AS buried,
               count(*) FILTER (WHERE u.kind = 1 AND coalesce(u.start, moment + u.delay, moment) > moment) AS delayed
        FROM unnest(verdicts, queues, kinds, delays, starts) AS u(verdict, queue, kind, delay, start)
        WHERE u.verdict = 0 GROUP BY u.queue
    LOOP
        PERFORM count_up(r.queue, r.retried - r.delayed, r.delayed, -r.n, r.buried, r.done, r.retried, r.buried);
    END LOOP;
END $$;

-- settle: apply each outcome whose lease is current, then enqueue the follow-ups of the accepted ones.
-- Outcomes: kinds 0 done, 1 retry, 2 bury. Follow-ups: `then_of` is the place of the outcome they belong to, the rest
-- as in store_jobs. Answer: a verdict for each outcome, as in judge; NULL: all accepted.
--
-- Fencing: the rows are locked first, then judged by a later statement, which under READ COMMITTED sees their last
-- committed version; nobody can change them until we commit. So a lease that ended or was settled is refused.
-- Holders of the follow-ups' keys are locked together with the jobs, in one order by id (see lock_jobs).
CREATE FUNCTION settle(
    at bigint, ids bigint[], tokens bigint[], queues text[], kinds smallint[], seen integer[], delays bigint[],
    starts bigint[], reasons text[], results bytea[],
    then_of integer[], then_queues text[], then_datas bytea[], then_ranks double precision[], then_delays bigint[],
    then_starts bigint[], then_costs bigint[], then_keeps double precision[], then_keys text[], then_ways smallint[],
    then_guests bytea[]
) RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
    moment   bigint;
    verdicts smallint[];
    t        record;
BEGIN
    PERFORM lock_jobs(ids || key_holders(then_queues, then_keys));
    moment := present(at);
    verdicts := judge(moment, ids, tokens, queues, kinds, seen);
    PERFORM apply_outcomes(moment, verdicts, ids, queues, kinds, delays, starts, reasons, results);
    IF cardinality(then_of) > 0 THEN
        SELECT array_agg(queue) AS queues, array_agg(data) AS datas, array_agg(rank) AS ranks,
               array_agg(delay) AS delays, array_agg(start) AS starts, array_agg(cost) AS costs,
               array_agg(keep_for) AS keeps, array_agg(key) AS keys, array_agg(way) AS ways, array_agg(guest) AS guests
        INTO t
        FROM unnest(then_of, then_queues, then_datas, then_ranks, then_delays, then_starts, then_costs, then_keeps,
                    then_keys, then_ways, then_guests)
             AS u(of, queue, data, rank, delay, start, cost, keep_for, key, way, guest)
        WHERE verdicts[u.of] = 0;
        IF t.queues IS NOT NULL THEN
            PERFORM store_jobs(moment, t.queues, t.datas, t.ranks, t.delays, t.starts, t.costs, t.keeps, t.keys, t.ways,
                               t.guests, false);
        END IF;
    END IF;
    RETURN NULLIF(verdicts, array_fill(0::smallint, ARRAY[cardinality(verdicts)]));
END $$;

-- finish: settle for the usual case: every outcome is a Done without result and follow-ups, all in one queue, each for
-- another job, the ids ascending. One statement deletes the rows that are just that, lowest id first; what is left over
-- (refused, keyed, kept) goes through settle. Answer: as of settle.
--
-- Fencing: under READ COMMITTED a row that was changed after our look is looked at again once its lock is ours.
CREATE FUNCTION finish(at bigint, q text, ids bigint[], tokens bigint[], seen integer[])
RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
    moment double precision := present(at);
    gone   bigint[];
BEGIN
    WITH deleted AS (
        DELETE FROM jobs j
        WHERE j.id = ANY (ids) AND j.attempts = tokens[width_bucket(j.id, ids)] AND j.queue || '' = q
          AND j.state + 0 = 2 AND j.sort > moment AND j.key IS NULL AND j.keep_for = 0
        RETURNING j.id
    )
    SELECT array_agg(d.id) INTO gone FROM deleted d;
    IF cardinality(gone) > 0 THEN
        PERFORM count_up(q, 0, 0, -cardinality(gone), d_done => cardinality(gone));
        IF cardinality(gone) = cardinality(ids) THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN settle_the_rest(at, coalesce(gone, '{}'), q, ids, tokens, seen);
END $$;

CREATE FUNCTION settle_the_rest(at bigint, gone bigint[], q text, ids bigint[], tokens bigint[], seen integer[])
RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
    rest     record;
    verdicts smallint[] := array_fill(0::smallint, ARRAY[cardinality(ids)]);
    judged   smallint[];
BEGIN
    SELECT array_agg(u.ord) AS ords, array_agg(u.id) AS ids, array_agg(u.token) AS tokens, array_agg(q) AS queues,
           array_agg(u.seen) AS seen, array_agg(0::smallint) AS kinds
    INTO rest
    FROM unnest(ids, tokens, seen) WITH ORDINALITY AS u(id, token, seen, ord)
    WHERE u.id NOT IN (SELECT unnest(gone));
    judged := settle(at, rest.ids, rest.tokens, rest.queues, rest.kinds, rest.seen, '{}', '{}', '{}', '{}',
                     '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
    IF judged IS NULL THEN
        RETURN NULL;
    END IF;
    FOR place IN 1 .. cardinality(judged) LOOP
        verdicts[rest.ords[place]] := judged[place];
    END LOOP;
    RETURN verdicts;
END $$;

-- extend: make each current lease end `lease` ms from now. Answer: the places of those that are lost.
CREATE FUNCTION extend(at bigint, ids bigint[], tokens bigint[], queues text[], lease bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    moment bigint;
    held   bigint[];
    lost   bigint[];
BEGIN
    PERFORM lock_jobs(ids);
    moment := present(at);
    SELECT array_agg(j.id) FILTER (WHERE j.id IS NOT NULL), array_agg(u.ord ORDER BY u.ord) FILTER (WHERE j.id IS NULL)
    INTO held, lost
    FROM unnest(ids, tokens, queues) WITH ORDINALITY AS u(id, token, queue, ord)
    LEFT JOIN LATERAL (
        SELECT j.id, j.attempts, j.queue, j.state, j.sort FROM jobs j WHERE j.id = u.id OFFSET 0
    ) j ON j.attempts = u.token AND j.queue = u.queue AND j.state = 2 AND j.sort > moment;
    UPDATE jobs SET sort = moment + lease WHERE id = ANY (held);
    RETURN coalesce(lost, '{}');
END $$;

-- rerank: apply each new rank whose job waits and has not more waiters than seen (NULL: however many). Answer: how many
-- were applied; of several for one job the last stays.
CREATE FUNCTION rerank(at bigint, ids bigint[], queues text[], ranks double precision[], seen bigint[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment  bigint := present(at);
    last    record;
BEGIN
    PERFORM apply_due(q, moment) FROM (SELECT DISTINCT unnest(queues) AS q) named;
    PERFORM lock_jobs(ids);
    SELECT sum(good.times), array_agg(good.id ORDER BY good.id) AS ids, array_agg(good.rank ORDER BY good.id) AS ranks
    INTO last
    FROM (
        SELECT u.id, count(*) AS times, (array_agg(u.rank ORDER BY u.ord DESC))[1] AS rank
        FROM unnest(ids, queues, ranks, seen) WITH ORDINALITY AS u(id, queue, rank, seen, ord), LATERAL (
            SELECT j.queue, j.state, j.waiters FROM jobs j WHERE j.id = u.id OFFSET 0
        ) j
        WHERE j.queue = u.queue AND j.state < 2 AND coalesce(j.waiters <= u.seen, true)
        GROUP BY u.id
    ) good;
    UPDATE jobs j
    SET rank = last.ranks[width_bucket(j.id, last.ids)],
        sort = CASE j.state WHEN 0 THEN last.ranks[width_bucket(j.id, last.ids)] ELSE j.sort END
    WHERE j.id = ANY (last.ids);
    RETURN coalesce(last.sum, 0);
END $$;

-- waiters_of: who waits for a taken job, in the order in which they joined; empty if the lease is lost.
CREATE FUNCTION waiters_of(at bigint, job_id bigint, token bigint, q text) RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
    moment bigint := present(at);
BEGIN
    IF EXISTS (
        SELECT FROM jobs j
        WHERE j.id = job_id AND j.queue || '' = q AND j.attempts = token AND j.state + 0 = 2 AND j.sort > moment
    ) THEN
        RETURN ARRAY(SELECT w.data FROM waiters w WHERE w.job = job_id ORDER BY w.n);
    END IF;
    RETURN '{}';
END $$;
