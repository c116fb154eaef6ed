-- Lanes: who of a lane is in the line and who is held, the turns of a fair line, and the rules. What they mean is in
-- accoda/storage/protocol.py.
--
-- A step of a verb puts jobs of a lane into the state of entry_state, notes the lane as `queue/lane` (no queue's name has a
-- slash) among those that it touched, and calls balance at its end. `queue/` alone: in a queue with a total a run has ended.
--
-- Concurrency. The jobs of a lane that are ready or taken become more only in balance, which holds the lane's lock until its
-- commit. Each of its statements after the lock has a newer snapshot (READ COMMITTED) and so sees all that those who held
-- the lock before have committed: no place is given twice. Takes do not lock lanes, since they change no sum, and what ends
-- a run before our count is seen by us or balances after us, since it waits for the lock. Ready and taken jobs are counted by
-- one statement: a job that is taken between two would be in neither count.
-- No circle of waiting calls: a call that holds a lock of a lane has its locks on jobs already, and waits for no other: in
-- balance, jobs that others have locked are passed over, and a lane of which one was passed over is left in `unbalanced`
-- for the next call that applies what is due. Locks of lanes are taken all at once and in one order. (Only `change` may
-- then wait, for a flow that another call makes at the same moment: see store_jobs.) A caller's own transaction, which may
-- stay open for long or see an old snapshot, takes no lock of a lane and reads no rules: its jobs of lanes are held, and its
-- lanes are unbalanced, from its commit on.
-- Rules change under a lock of the queue that all who balance its lanes share, so whoever balanced by the old rules has
-- committed when the new ones are applied to all lanes.

-- The state in which a job of a lane comes in, until its lane is balanced. Where there are no rules that changes nothing,
-- so it is ready at once. Rules that come at this moment are no harm: balance looks again, under the lock.
CREATE FUNCTION entry_state(q text, apart boolean = false) RETURNS job_state LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN apart OR EXISTS (SELECT FROM lane_rules r WHERE r.queue = q) THEN -1 ELSE 0 END;
END $$;

-- The lock of a lane: one of 1,024 of the store, since the server has room for some thousands, and a call may have 100,000
-- lanes. Lanes with the same lock wait for each other, no more.
CREATE FUNCTION lane_lock(path text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RETURN (hashtext(current_schema()) & -1024) | (hashtext(path) & 1023);
END $$;

CREATE FUNCTION lock_total(q text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(x'41636367'::integer, hashtext(current_schema() || '/' || q));
END $$;

-- Balance lanes, at the end of a step. Answer: what to notify: queues where a job came into the line, or may now be taken.
CREATE FUNCTION balance(touched text[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    queues text[] := ARRAY(SELECT DISTINCT split_part(path, '/', 1) FROM unnest(touched) path);
    ruled  text[];
    news   text[] := '{}';
    r      record;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(x'41636365'::integer, hashtext(current_schema() || '/' || name))
    FROM unnest(queues) name;
    -- Without rules there is nothing to do, unless jobs are held that came in a caller's transaction or under former rules.
    ruled := ARRAY(
        SELECT name FROM unnest(queues) name
        WHERE (SELECT l.queue FROM lane_rules l WHERE l.queue = name) IS NOT NULL
           OR (SELECT j.id FROM jobs j WHERE j.queue = name AND j.state = -1 LIMIT 1) IS NOT NULL
    );
    IF cardinality(ruled) = 0 THEN
        RETURN news;
    END IF;
    PERFORM pg_advisory_xact_lock(x'41636366'::integer, key)
    FROM (
        SELECT DISTINCT lane_lock(path) AS key FROM unnest(touched) path
        WHERE split_part(path, '/', 1) = ANY (ruled) AND strpos(path, '/') < length(path) ORDER BY 1 OFFSET 0
    ) keys;
    FOR r IN
        SELECT queue, array_agg(DISTINCT lane ORDER BY lane) FILTER (WHERE lane <> '') AS lanes, bool_or(lane = '') AS freed
        FROM (
            SELECT split_part(path, '/', 1) AS queue, substr(path, strpos(path, '/') + 1) COLLATE "C" AS lane
            FROM unnest(touched) path
        ) t WHERE queue = ANY (ruled) GROUP BY queue ORDER BY queue
    LOOP
        IF (r.lanes IS NOT NULL AND balance_lanes(r.queue, r.lanes)) OR r.freed THEN
            news := news || ('+' || r.queue);
        END IF;
    END LOOP;
    RETURN news;
END $$;

-- Balance lanes of a queue whose locks are held. Answer: whether a job came into the line or a lane is still to be balanced.
-- Mostly the best held jobs fill the free places of their lanes, which is done for all lanes at once. Where a ready job has
-- to be held, the lanes are balanced one after the other, since turns depend on who is in the line.
CREATE FUNCTION balance_lanes(q text, lanes text[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    rules   lane_rules;
    moves   record;
    name    text;
    changed boolean := false;
BEGIN
    SELECT * INTO rules FROM lane_rules r WHERE r.queue = q;
    SELECT array_agg(h.id) FILTER (WHERE h.id IS NOT NULL) AS chosen,
           coalesce(bool_or(n.free < 0 OR n.is_worse), false) AS surplus
    INTO moves
    FROM (
        SELECT f.lane, f.free, f.free IS NOT NULL AND EXISTS (  -- the best of those that stay held, and the worst in the line
            SELECT FROM (
                SELECT w.rank, w.id FROM jobs w WHERE w.queue || '' = q AND w.lane = f.lane AND w.state = -1
                ORDER BY w.sort, w.id OFFSET greatest(0, f.free) LIMIT 1
            ) next WHERE (next.rank, next.id) < (f.worst_rank, f.highest_id)
        ) AS is_worse
        FROM (
            SELECT l.lane, l.most - b.busy AS free, b.worst_rank, b.highest_id
            FROM (SELECT u.lane, limit_of(rules, u.lane) AS most FROM unnest(lanes) u(lane) OFFSET 0) l, LATERAL (
                SELECT count(*) AS busy, max(j.rank) AS worst_rank, max(j.id) AS highest_id
                FROM (
                    SELECT r.rank, r.id FROM jobs r
                    WHERE r.queue || '' = q AND r.lane = l.lane AND r.state = 0 AND l.most IS NOT NULL
                    UNION ALL
                    SELECT NULL, NULL FROM jobs t
                    WHERE t.queue || '' = q AND t.lane = l.lane AND t.state = 2 AND l.most IS NOT NULL
                ) j
            ) b OFFSET 0
        ) f OFFSET 0
    ) n LEFT JOIN LATERAL (
        SELECT w.id FROM jobs w WHERE w.queue || '' = q AND w.lane = n.lane AND w.state = -1
        ORDER BY w.sort, w.id LIMIT CASE WHEN n.free < 0 THEN 0 ELSE n.free END
    ) h ON true;
    IF NOT moves.surplus THEN
        RETURN moves.chosen IS NOT NULL AND let_in(q, rules, moves.chosen);
    END IF;
    FOREACH name IN ARRAY lanes LOOP
        changed := rearrange_lane(q, rules, name) OR changed;
    END LOOP;
    RETURN changed;
END $$;

CREATE FUNCTION limit_of(rules lane_rules, lane text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN rules.limits ? lane THEN (rules.limits ->> lane)::bigint ELSE rules.limit END;
END $$;

-- Balance one lane, in which ready jobs may have to be held.
CREATE FUNCTION rearrange_lane(q text, rules lane_rules, name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    most    bigint := limit_of(rules, name);
    surplus bigint[];
    chosen  bigint[];
BEGIN
    SELECT array_agg(m.id) FILTER (WHERE m.state = 0), array_agg(m.id) FILTER (WHERE m.state = -1) INTO surplus, chosen
    FROM (
        SELECT j.id, j.state, coalesce(row_number() OVER (ORDER BY j.rank, j.id) <= n.room, true) AS fits
        FROM (
            SELECT CASE WHEN most IS NOT NULL THEN greatest(0, most - count(*)) END AS room
            FROM jobs t WHERE t.queue || '' = q AND t.lane = name AND t.state = 2
        ) n, LATERAL (
            (SELECT r.id, r.rank, r.state FROM jobs r
             WHERE r.queue || '' = q AND r.lane = name AND r.state = 0 AND n.room IS NOT NULL)
            UNION ALL
            (SELECT h.id, h.rank, h.state FROM jobs h WHERE h.queue || '' = q AND h.lane = name AND h.state = -1
             ORDER BY h.sort, h.id LIMIT n.room)
        ) j
    ) m WHERE (m.state = 0) <> m.fits;
    IF surplus IS NOT NULL AND NOT hold_back(q, surplus) THEN
        PERFORM leave_unbalanced(ARRAY[q || '/' || name]);
        RETURN true;
    END IF;
    RETURN chosen IS NOT NULL AND let_in(q, rules, chosen);
END $$;

-- Hold ready jobs of a lane. Answer: whether none was passed over. One that is being taken at this moment keeps its place,
-- and so does one that a caller's transaction has locked.
CREATE FUNCTION hold_back(q text, ids bigint[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    locked tid[] := ARRAY(SELECT j.ctid FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = 0 FOR UPDATE SKIP LOCKED);
BEGIN
    UPDATE jobs SET state = -1, sort = rank WHERE ctid = ANY (locked);
    PERFORM add_counts(q, -cardinality(locked), 0, 0, d_held => cardinality(locked));
    RETURN cardinality(locked) = cardinality(ids);
END $$;

-- Let held jobs into the line, in the order of their lanes, ranks and ids. Those that are locked are passed over, and their
-- lanes are left to a later call. Answer: true.
CREATE FUNCTION let_in(q text, rules lane_rules, ids bigint[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    locked bigint[] := ARRAY(
        SELECT j.id FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = -1 ORDER BY j.id FOR UPDATE SKIP LOCKED
    );
    turns  double precision[];
BEGIN
    IF rules.fair THEN
        turns := turns_of(q, rules, locked);
    END IF;
    UPDATE jobs j SET state = 0, sort = coalesce(turns[width_bucket(j.id, locked)], j.rank) WHERE j.id = ANY (locked);
    PERFORM add_counts(q, cardinality(locked), 0, 0, d_held => -cardinality(locked));
    IF cardinality(locked) < cardinality(ids) THEN
        PERFORM leave_unbalanced(ARRAY(
            SELECT DISTINCT q || '/' || j.lane FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = -1
        ));
    END IF;
    RETURN true;
END $$;

-- The turns of locked jobs that come into a fair line, in the order of their ids, which ascend.
-- What is in the line is read once for each level, and once for each lane at a level; then a job that comes in here counts for
-- those behind it. Other lanes may change the lowest turn at the same moment: then these turns are as of before.
CREATE FUNCTION turns_of(q text, rules lane_rules, ids bigint[]) RETURNS double precision[] LANGUAGE plpgsql AS $$
DECLARE
    unit     CONSTANT double precision := 2.0::double precision ^ (-40);  -- TURN in accoda/model.py
    newcomer CONSTANT double precision := 1 - 2.0::double precision ^ (-10);  -- NEWCOMER there
    turns    double precision[] := array_fill(NULL::double precision, ARRAY[cardinality(ids)]);
    levels   double precision[] := '{}';
    firsts   double precision[] := '{}';  -- the lowest turn at each level; NULL: there is none
    place    integer;  -- of the level in both
    r        record;
    name     text;              -- the lane of the job before
    level    double precision;  -- and its level
    last     double precision;  -- the last turn of the lane at this level; NULL: there is none
    weight   double precision;
    length   double precision;
    turn     double precision;
BEGIN
    FOR r IN
        SELECT j.id, j.lane, j.cost, j.floor, l.sort AS last
        FROM (SELECT i.id, i.lane, i.cost, i.rank, floor(i.rank) FROM jobs i WHERE i.id = ANY (ids) OFFSET 0) j
        LEFT JOIN LATERAL (
            SELECT p.sort FROM jobs p
            WHERE p.queue || '' = q AND p.lane = j.lane AND p.state = 0 AND p.sort >= j.floor AND p.sort < j.floor + 1
            ORDER BY p.sort DESC LIMIT 1
        ) l ON true
        ORDER BY j.lane, j.rank, j.id
    LOOP
        IF name IS NULL OR name <> r.lane OR level <> r.floor THEN
            name := r.lane;
            level := r.floor;
            last := r.last;
            weight := coalesce((rules.weights ->> name)::double precision, 1);
            place := array_position(levels, level);
            IF place IS NULL THEN
                levels := levels || level;
                firsts := array_append(firsts, lowest_turn(q, level));
                place := cardinality(levels);
            END IF;
        END IF;
        length := CASE WHEN rules.by_cost THEN greatest(1, r.cost) ELSE 1 END / weight * unit;
        turn := coalesce(last + length, coalesce(firsts[place], level) + length * newcomer);
        IF turn >= level + 1 AND level + 1 > level THEN
            turn := level + 1 - unit;
        END IF;
        turns[width_bucket(r.id, ids)] := turn;
        IF turn >= level AND turn < level + 1 THEN
            last := greatest(last, turn);
            firsts[place] := least(firsts[place], turn);
        END IF;
    END LOOP;
    RETURN turns;
END $$;

-- The lowest turn of the ready jobs of lanes at a level; NULL: there is none.
CREATE FUNCTION lowest_turn(q text, level double precision) RETURNS double precision LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT j.sort FROM jobs j
        WHERE j.queue || '' = q AND j.lane IS NOT NULL AND j.state + 0 = 0 AND j.sort >= level AND j.sort < level + 1
        ORDER BY j.sort LIMIT 1
    );
END $$;

-- Leave lanes to the next call that applies what is due.
CREATE FUNCTION leave_unbalanced(touched text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO unbalanced (queue, lane)
    SELECT DISTINCT split_part(path, '/', 1), substr(path, strpos(path, '/') + 1) FROM unnest(touched) path ORDER BY 1, 2;
END $$;

-- Up to `most` lanes of a queue that were left: the caller balances them. One that another call has locked is balanced there.
CREATE FUNCTION unbalanced_lanes(q text, most bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    places tid[] := ARRAY(SELECT ctid FROM unbalanced WHERE queue = q ORDER BY id LIMIT most FOR UPDATE SKIP LOCKED);
    lanes  text[];
BEGIN
    WITH gone AS (DELETE FROM unbalanced WHERE ctid = ANY (places) RETURNING queue || '/' || lane AS path)
    SELECT coalesce(array_agg(path), '{}') INTO lanes FROM gone;
    RETURN lanes;
END $$;

-- set_lanes: give a queue other rules, as JSON; NULL: none. All its lanes are to be balanced then, by catch_up.
-- The lock waits until those who balanced by the old rules have committed, and this is the first lock of the call.
CREATE FUNCTION set_lanes(q text, rules text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(x'41636365'::integer, hashtext(current_schema() || '/' || q));
    DELETE FROM lane_rules WHERE queue = q;
    IF rules IS NOT NULL THEN
        INSERT INTO lane_rules
        SELECT * FROM jsonb_populate_record(NULL::lane_rules, rules::jsonb || jsonb_build_object('queue', q));
    END IF;
    INSERT INTO unbalanced (queue, lane)
    SELECT DISTINCT q, j.lane FROM jobs j
    WHERE j.queue || '' = q AND j.lane IS NOT NULL AND j.state IN (-1, 0, 2) ORDER BY 2;
END $$;

-- catch_up: apply a part of what is due in a queue, and wake those who wait for it. Answer: how much it was.
CREATE FUNCTION catch_up(at bigint, q text)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    due record := apply_due(q, present(at));
BEGIN
    IF due.touched IS NOT NULL THEN
        PERFORM balance(due.touched);
    END IF;
    PERFORM notify_queues(ARRAY[q]);
    RETURN due.spent;
END $$;

-- lanes: the rules of a queue, as JSON, its first lanes by how many of their jobs are ready or held, and how many lanes it has.
CREATE TYPE lane_info AS (lane text, ready bigint, held bigint, taken bigint);

CREATE FUNCTION lanes(at bigint, q text, most bigint, OUT rules text, OUT shown lane_info[], OUT count bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    due record := apply_due(q, present(at));
BEGIN
    IF due.touched IS NOT NULL THEN
        PERFORM balance(due.touched);
    END IF;
    WITH counted AS (
        SELECT j.lane, count(*) FILTER (WHERE j.state = 0) AS ready, count(*) FILTER (WHERE j.state = -1) AS held,
               count(*) FILTER (WHERE j.state = 2) AS taken
        FROM jobs j WHERE j.queue || '' = q AND j.lane IS NOT NULL AND j.state IN (-1, 0, 2) GROUP BY j.lane
    )
    SELECT (SELECT to_jsonb(r) - 'queue' FROM lane_rules r WHERE r.queue = q),
           ARRAY(
               SELECT ROW(c.lane, c.ready, c.held, c.taken)::lane_info FROM counted c
               ORDER BY c.ready + c.held DESC, c.lane LIMIT most
           ),
           (SELECT count(*) FROM counted)
    INTO rules, shown, count;
END $$;
