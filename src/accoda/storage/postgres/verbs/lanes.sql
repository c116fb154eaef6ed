-- Lanes: who of a lane is in the line and who is held, the turns of a fair line, and the rules. What they mean is in
-- accoda/storage/protocol.py.
--
-- A step of a verb puts jobs of a lane into the state of entry_state, notes the lane as `queue/lane` (no queue's name has a
-- slash) among those that it touched, and calls balance at its end. `queue/` alone: in a queue with a total a run has ended.
-- `-queue/lane`: a run of the lane has ended, and nothing else happened to it. Then no job of it can be one too many, and
-- where none is held there is nothing to count.
--
-- Queues whose rules have the same `shared` are a group: a lane has one lock in all of them, and is balanced in all of them.
--
-- Concurrency. The jobs of a lane that are ready or taken become more only under the lane's lock, which is held until the
-- commit: in balance, and where new jobs come in at once (entries_of in enqueue.sql). Each statement after the lock has a
-- newer snapshot (READ COMMITTED) and so sees all that those who held the lock before have committed: no place is given
-- twice. Takes do not lock lanes, since they change no sum, and what ends a run before our count is seen by us or balances
-- after us, since it waits for the lock. Ready and taken jobs are counted by one statement, over all queues of the group: a
-- job that is taken between two would be in neither count.
-- Which lock a lane has depends on the rules. So all who balance share one lock, that of the rules, which set_lanes holds
-- alone: whoever balanced by the old rules has committed when the new ones come, and whoever has read the rules under the
-- lock knows the locks, the queues and the limits that all others go by until its commit.
-- No circle of waiting calls: set_lanes takes the lock of the rules first, and then waits for nothing. A call that balances
-- has its locks on jobs already, or needs none, as an enqueue without keys; it takes the lock of the rules, then those of
-- lanes, all at once and in one order, and then waits for no other: in balance, jobs that others have locked are passed over,
-- and a lane of which one was passed over is left in `unbalanced` for the next call that applies what is due. (Only `change`
-- may then wait, for a flow that another call makes at the same moment: see store_jobs.) A caller's own transaction, which
-- may stay open for long or see an old snapshot, takes no lock of the rules or of a lane, and what it knows of the rules
-- decides only whom it wakes: its jobs of lanes are held, and its lanes are unbalanced, from its commit on.
--
-- Other rules may let very many jobs in. A step lets in at most 1,000 of a lane beside as many as it touched itself, leaves
-- such a lane unbalanced, and set_lanes goes on with further steps. Holding back is not divided: a job above the limit must
-- not be taken in between. (For 100,000 jobs that is a statement of seconds, for which only calls about the lane wait.)

-- The state in which a job of a lane comes in, until its lane is balanced. Where there are no rules that changes nothing,
-- so it is ready at once. Rules that come at this moment are no harm: balance looks again, under the lock.
CREATE FUNCTION entry_state(q text, apart boolean = false) RETURNS job_state LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN apart OR EXISTS (SELECT FROM lane_rules r WHERE r.queue = q) THEN -1 ELSE 0 END;
END $$;

-- The queues that share their limits with a queue, itself included.
CREATE FUNCTION group_of(q text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    name text := (SELECT r.shared FROM lane_rules r WHERE r.queue = q);
BEGIN
    RETURN CASE WHEN name IS NULL THEN ARRAY[q] ELSE ARRAY(SELECT r.queue FROM lane_rules r WHERE r.shared = name ORDER BY 1) END;
END $$;

-- The lock of the rules of the store: shared by those who balance, alone for one who changes them.
CREATE FUNCTION lock_rules(alone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF alone THEN
        PERFORM pg_advisory_xact_lock(x'41636365'::integer, hashtext(current_schema()));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(x'41636365'::integer, hashtext(current_schema()));
    END IF;
END $$;

-- The lock of a lane: one of 1,024 of the store, since the server has room for some thousands, and a call may have 100,000
-- lanes. Lanes with the same lock wait for each other, no more.
CREATE FUNCTION lane_lock(path text) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT (hashtext(current_schema()) & -1024) | (hashtext(path) & 1023)
$$;

CREATE FUNCTION lock_total(q text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(x'41636367'::integer, hashtext(current_schema() || '/' || q));
END $$;

-- Take the lock of the rules and those of lanes; `lanes` is in the order of `queues`. Answer: who has each lane: the queue, or
-- `=` and what its group shares; NULL: there is nothing to balance, see owners_of.
CREATE FUNCTION lock_lanes(queues text[], lanes text[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    owners text[];
BEGIN
    PERFORM lock_rules(false);
    owners := owners_of(queues);
    PERFORM pg_advisory_xact_lock(x'41636366'::integer, key)
    FROM (
        SELECT DISTINCT lane_lock(owner || '/' || lane) AS key FROM unnest(owners, lanes) t(owner, lane)
        WHERE owner IS NOT NULL AND lane <> '' ORDER BY 1 OFFSET 0
    ) keys;
    RETURN owners;
END $$;

-- Balance lanes, at the end of a step. Answer: what to notify: queues where a job came into the line, or may now be taken.
CREATE FUNCTION balance(touched text[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    queues text[];
    lanes  text[];  -- in the same order, like the next two
    ends   boolean[];
    owners text[];
    news   text[] := '{}';
    r      record;
BEGIN
    SELECT array_agg(split_part(path, '/', 1)), array_agg(substr(path, strpos(path, '/') + 1)), array_agg(t.is_end)
    INTO queues, lanes, ends
    FROM (SELECT ltrim(note, '-') AS path, bool_and(note ^@ '-') AS is_end FROM unnest(touched) note GROUP BY 1) t;
    owners := lock_lanes(queues, lanes);
    FOR r IN
        SELECT owner, min(queue) AS queue, array_agg(DISTINCT lane COLLATE "C" ORDER BY lane COLLATE "C") AS lanes
        FROM unnest(owners, queues, lanes, ends) t(owner, queue, lane, is_end)
        WHERE owner IS NOT NULL AND lane <> '' AND (NOT is_end OR owner <> queue OR (  -- else nobody is there to come in
            SELECT h.id FROM jobs h WHERE h.queue || '' = t.queue AND h.lane = t.lane AND h.state = -1 LIMIT 1
        ) IS NOT NULL)
        GROUP BY owner
    LOOP
        news := news || balance_lanes(group_of(r.queue), r.lanes, 1000 + cardinality(touched));
    END LOOP;
    RETURN ARRAY(
        SELECT '+' || name FROM unnest(news) name
        UNION SELECT '+' || queue FROM unnest(owners, queues, lanes) t(owner, queue, lane) WHERE owner IS NOT NULL AND lane = ''
    );
END $$;

-- Who has the lanes of each of these queues. Without rules there is nothing to balance, unless jobs are held that came in a
-- caller's transaction or under former rules.
CREATE FUNCTION owners_of(queues text[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    names  text[] := ARRAY(SELECT DISTINCT name FROM unnest(queues) name);
    owners text[] := ARRAY(  -- of the names
        SELECT CASE WHEN r.queue IS NOT NULL THEN coalesce('=' || r.shared, n.name)
                    WHEN (SELECT j.id FROM jobs j WHERE j.queue = n.name AND j.state = -1 LIMIT 1) IS NOT NULL THEN n.name END
        FROM unnest(names) WITH ORDINALITY n(name, place)
        LEFT JOIN LATERAL (SELECT l.queue, l.shared FROM lane_rules l WHERE l.queue = n.name OFFSET 0) r ON true
        ORDER BY n.place
    );
BEGIN
    RETURN ARRAY(SELECT owners[array_position(names, name)] FROM unnest(queues) WITH ORDINALITY q(name, place) ORDER BY place);
END $$;

-- Balance lanes of queues that share their limits and whose locks are held; `bound`: how many jobs of a lane may come in.
-- Answer: the queues where a job came into the line, or of which a lane is still to be balanced.
-- Mostly the best held jobs fill the free places of the lanes of one queue, which is done for all lanes at once. Where a ready
-- job has to be held, the lanes are balanced one after the other, since turns depend on who is in the line.
CREATE FUNCTION balance_lanes(queues text[], lanes text[], bound integer) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    q       text := queues[1];
    rules   lane_rules;
    moves   record;
    name    text;
    changed text[] := '{}';
BEGIN
    IF cardinality(queues) = 1 THEN
        SELECT * INTO rules FROM lane_rules r WHERE r.queue = q;
        SELECT array_agg(h.id) FILTER (WHERE h.id IS NOT NULL) AS chosen,
               coalesce(bool_or(n.free < 0 OR n.is_worse), false) AS surplus
        INTO moves
        FROM (
            SELECT f.lane, f.free, f.worst_rank IS NOT NULL AND EXISTS (  -- the best that stays held, and the worst in the line
                SELECT FROM (
                    SELECT w.rank, w.id FROM jobs w WHERE w.queue || '' = q AND w.lane = f.lane AND w.state = -1
                    ORDER BY w.sort, w.id OFFSET greatest(0, least(f.free, bound)) LIMIT 1
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
            ORDER BY w.sort, w.id LIMIT greatest(0, least(n.free, bound))
        ) h ON true;
        IF NOT moves.surplus THEN
            IF cardinality(moves.chosen) >= bound THEN
                PERFORM leave_unbalanced(ARRAY(
                    SELECT q || '/' || j.lane FROM jobs j WHERE j.id = ANY (moves.chosen)
                    GROUP BY j.lane HAVING count(*) >= bound
                ));
            END IF;
            RETURN CASE WHEN let_in(q, moves.chosen) THEN queues END;
        END IF;
    END IF;
    FOREACH name IN ARRAY lanes LOOP
        changed := changed || rearrange_lane(queues, name, bound);
    END LOOP;
    RETURN changed;
END $$;

CREATE FUNCTION limit_of(rules lane_rules, lane text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN rules.limits ? lane THEN (rules.limits ->> lane)::bigint ELSE rules.limit END;
END $$;

-- Balance one lane of queues that share its limit, where ready jobs may have to be held. Answer: as that of balance_lanes.
CREATE FUNCTION rearrange_lane(queues text[], name text, bound integer) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    most    bigint := (SELECT min(limit_of(l, name)) FROM lane_rules l WHERE l.queue = ANY (queues));
    surplus bigint[];
    chosen  bigint[];
    changed text[] := '{}';
    r       record;
BEGIN
    SELECT array_agg(m.id) FILTER (WHERE m.state = 0),
           (array_agg(m.id ORDER BY m.rank, m.id) FILTER (WHERE m.state = -1))[:bound]
    INTO surplus, chosen
    FROM (
        SELECT j.id, j.rank, j.state, coalesce(row_number() OVER (ORDER BY j.rank, j.id) <= n.room, true) AS fits
        FROM (
            SELECT CASE WHEN most IS NOT NULL THEN greatest(0, most - count(*)) END AS room
            FROM unnest(queues) q, LATERAL (
                SELECT FROM jobs t WHERE t.queue || '' = q AND t.lane = name AND t.state = 2 OFFSET 0
            ) taken
        ) n, unnest(queues) q, LATERAL (
            (SELECT i.id, i.rank, i.state FROM jobs i
             WHERE i.queue || '' = q AND i.lane = name AND i.state = 0 AND n.room IS NOT NULL)
            UNION ALL
            (SELECT h.id, h.rank, h.state FROM jobs h WHERE h.queue || '' = q AND h.lane = name AND h.state = -1
             ORDER BY h.sort, h.id LIMIT least(n.room, bound))
        ) j
    ) m WHERE (m.state = 0) <> m.fits;
    IF NOT hold_back(surplus) THEN
        PERFORM leave_unbalanced(ARRAY(SELECT q || '/' || name FROM unnest(queues) q));
        RETURN queues;
    END IF;
    IF cardinality(chosen) >= bound THEN
        PERFORM leave_unbalanced(ARRAY(SELECT q || '/' || name FROM unnest(queues) q));
    END IF;
    FOR r IN SELECT j.queue, array_agg(j.id) AS ids FROM jobs j WHERE j.id = ANY (chosen) GROUP BY j.queue LOOP
        IF let_in(r.queue, r.ids) THEN
            changed := changed || r.queue::text;
        END IF;
    END LOOP;
    RETURN changed;
END $$;

-- Hold ready jobs of a lane. Answer: whether none was passed over. One that is being taken at this moment keeps its place,
-- and so does one that a caller's transaction has locked.
CREATE FUNCTION hold_back(ids bigint[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    locked tid[] := ARRAY(SELECT j.ctid FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = 0 FOR UPDATE SKIP LOCKED);
    r      record;
BEGIN
    FOR r IN
        WITH held AS (UPDATE jobs SET state = -1, sort = rank WHERE ctid = ANY (locked) RETURNING queue)
        SELECT queue, count(*) AS n FROM held GROUP BY queue
    LOOP
        PERFORM add_counts(r.queue, -r.n, 0, 0, d_held => r.n);
    END LOOP;
    RETURN cardinality(locked) = coalesce(cardinality(ids), 0);
END $$;

-- Let held jobs of a queue into the line, in the order of their lanes, ranks and ids. Those that are locked are passed over,
-- and their lanes are left to a later call. Answer: whether there were any.
CREATE FUNCTION let_in(q text, ids bigint[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l     record;  -- those that are locked now: a place stays valid, since a locked row does not move
    count bigint;
    turns double precision[];
BEGIN
    IF ids IS NULL THEN
        RETURN false;
    END IF;
    SELECT array_agg(j.place) AS places, array_agg(j.id) AS ids, array_agg(j.lane) AS lanes, array_agg(j.rank) AS ranks,
           array_agg(j.cost) AS costs
    INTO l
    FROM (
        SELECT c.ctid AS place, c.id::bigint, c.lane::text, c.rank::double precision, c.cost::bigint FROM jobs c
        WHERE c.id = ANY (let_in.ids) AND c.state + 0 = -1 ORDER BY c.id FOR UPDATE SKIP LOCKED
    ) j;
    turns := turns_of(q, l.lanes, l.ranks, l.costs);
    UPDATE jobs j SET state = 0, sort = turns[width_bucket(j.id, l.ids)] WHERE j.ctid = ANY (l.places);
    GET DIAGNOSTICS count = ROW_COUNT;
    PERFORM add_counts(q, count, 0, 0, d_held => -count);
    IF count < cardinality(ids) THEN
        PERFORM leave_unbalanced(ARRAY(
            SELECT DISTINCT q || '/' || j.lane FROM jobs j WHERE j.id = ANY (ids) AND j.state + 0 = -1
        ));
    END IF;
    RETURN true;
END $$;

-- What orders jobs that come into the line of a queue, in the order in which they are given, that of their ids: the ranks, or
-- in a fair line their turns. What is in the line is read once for each level, and once for each lane at a level; then a job
-- that comes in here counts for those behind it. Other lanes may change the lowest turn at the same moment: then these turns
-- are as of before.
CREATE FUNCTION turns_of(q text, lanes text[], ranks double precision[], costs bigint[])
RETURNS double precision[] LANGUAGE plpgsql AS $$
DECLARE
    unit     CONSTANT double precision := 2.0::double precision ^ (-40);  -- TURN in accoda/model.py
    newcomer CONSTANT double precision := 1 - 2.0::double precision ^ (-10);  -- NEWCOMER there
    rules    lane_rules;
    turns    double precision[] := ranks;
    levels   double precision[] := '{}';
    firsts   double precision[] := '{}';  -- the lowest turn at each level; NULL: there is none
    place    integer;  -- of the level in both
    r        record;
    last     double precision;  -- the last turn of the lane at this level; NULL: there is none
    turn     double precision;
BEGIN
    SELECT * INTO rules FROM lane_rules l WHERE l.queue = q;
    IF rules.fair IS NOT TRUE THEN
        RETURN ranks;
    END IF;
    FOR r IN
        SELECT j.place, j.level, j.nth, CASE WHEN rules.by_cost THEN greatest(1, j.cost) ELSE 1 END
               / coalesce((rules.weights ->> j.lane)::double precision, 1) * unit AS length,
               CASE WHEN j.nth = 1 THEN (
                   SELECT p.sort FROM jobs p
                   WHERE p.queue || '' = q AND p.lane = j.lane AND p.state = 0 AND p.sort >= j.level AND p.sort < j.level + 1
                   ORDER BY p.sort DESC LIMIT 1
               ) END AS last
        FROM (
            SELECT u.place, u.lane, u.cost, floor(u.rank) AS level,
                   row_number() OVER (PARTITION BY u.lane COLLATE "C", floor(u.rank) ORDER BY u.rank, u.place) AS nth
            FROM unnest(lanes, ranks, costs) WITH ORDINALITY u(lane, rank, cost, place)
        ) j
        ORDER BY j.lane COLLATE "C", j.level, j.nth
    LOOP
        IF r.nth = 1 THEN
            last := r.last;
            place := array_position(levels, r.level);
            IF place IS NULL THEN
                levels := levels || r.level;
                firsts := array_append(firsts, lowest_turn(q, r.level));
                place := cardinality(levels);
            END IF;
        END IF;
        turn := coalesce(last + r.length, coalesce(firsts[place], r.level) + r.length * newcomer);
        IF turn >= r.level + 1 AND r.level + 1 > r.level THEN
            turn := r.level + 1 - unit;
        END IF;
        turns[r.place] := turn;
        IF turn >= r.level AND turn < r.level + 1 THEN
            last := greatest(last, turn);
            IF turn < firsts[place] IS NOT FALSE THEN
                firsts[place] := turn;
            END IF;
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

-- The first lanes of a queue that were left: the caller balances them. One that another call has locked is balanced there. They
-- cost up to about `most` of its due moves: each one, and as many as it may let in. `cost`: how much it is.
CREATE FUNCTION unbalanced_lanes(q text, most bigint, OUT touched text[], OUT cost bigint) LANGUAGE plpgsql AS $$
DECLARE
    rules  lane_rules;
    places tid[] := '{}';
    u      record;
BEGIN
    SELECT * INTO rules FROM lane_rules r WHERE r.queue = q;
    cost := 0;
    FOR u IN SELECT ctid, lane FROM unbalanced WHERE queue = q ORDER BY id FOR UPDATE SKIP LOCKED LOOP
        EXIT WHEN cost >= most;
        touched := touched || (q || '/' || u.lane);
        places := places || u.ctid;
        cost := cost + 1 + (
            SELECT count(*) FROM (
                SELECT FROM jobs j WHERE j.queue || '' = q AND j.lane = u.lane AND j.state = -1
                LIMIT least(1000, limit_of(rules, u.lane))
            ) held
        );
    END LOOP;
    DELETE FROM unbalanced WHERE ctid = ANY (places);
END $$;

-- set_lanes: give a queue other rules, as JSON; NULL: none. Its lanes are to be balanced then, by catch_up, and so are those
-- of the queues that share limits with it now, or did before. Answer: these queues.
CREATE FUNCTION set_lanes(q text, rules text)
RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    queues text[];
BEGIN
    PERFORM lock_rules(true);
    queues := group_of(q);
    DELETE FROM lane_rules WHERE queue = q;
    IF rules IS NOT NULL THEN
        INSERT INTO lane_rules
        SELECT * FROM jsonb_populate_record(NULL::lane_rules, rules::jsonb || jsonb_build_object('queue', q));
    END IF;
    queues := ARRAY(SELECT unnest(queues) UNION SELECT unnest(group_of(q)) ORDER BY 1);
    INSERT INTO unbalanced (queue, lane)
    SELECT u.name, l.lane FROM unnest(queues) u(name), LATERAL (
        SELECT DISTINCT j.lane FROM jobs j WHERE j.queue || '' = u.name AND j.lane IS NOT NULL AND j.state IN (-1, 0, 2) OFFSET 0
    ) l ORDER BY 2, 1;
    RETURN queues;
END $$;

-- catch_up: apply a part of what is due in queues, and wake those who wait for them. Answer: how much it was.
CREATE FUNCTION catch_up(at bigint, queues text[])
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    moment  bigint := present(at);
    spent   bigint := 0;
    touched text[];
    due     record;
    q       text;
BEGIN
    FOREACH q IN ARRAY queues LOOP
        due := apply_due(q, moment, 1000 - spent);
        spent := spent + due.spent;
        touched := touched || due.touched;
    END LOOP;
    IF touched IS NOT NULL THEN
        PERFORM balance(touched);
    END IF;
    PERFORM notify_queues(queues);
    RETURN spent;
END $$;

-- lanes: the rules of a queue, as JSON, its first lanes by how many of their jobs are ready or held, and how many lanes it has.
-- With most = 0 the rules alone: nothing is applied or counted.
CREATE TYPE lane_info AS (lane text, ready bigint, held bigint, taken bigint);

CREATE FUNCTION lanes(at bigint, q text, most bigint, OUT rules text, OUT shown lane_info[], OUT count bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    touched text[];
BEGIN
    IF most = 0 THEN
        rules := (SELECT to_jsonb(r) - 'queue' FROM lane_rules r WHERE r.queue = q);
        shown := '{}';
        count := 0;
        RETURN;
    END IF;
    touched := (apply_due(q, present(at))).touched;
    IF touched IS NOT NULL THEN
        PERFORM balance(touched);
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
