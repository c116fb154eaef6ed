-- Records that cannot be read are set aside: dead, with the reason, and with what could be kept of them.
-- NOT NULL and the types are the engine's own; what is left are numbers that nobody wrote (negative, absurd, NaN,
-- infinite), states that do not exist and names that are none. 2**54 is beyond every moment that is ever written.
-- No CHECK says so: it would cost every write, and would have to be tested here on every row that is there.

-- Whether a record can be read. Signs show when all bits are laid over each other.
CREATE FUNCTION is_sound(
    id bigint, cost bigint, created_at bigint, start_time bigint, prev_start_time bigint, attempts integer,
    waiters integer, fresh_at integer, crashes integer, rank double precision, keep_for double precision
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (id | cost | created_at | start_time | coalesce(prev_start_time, 0)) BETWEEN 0 AND 18014398509481983
       AND (attempts | waiters | fresh_at | crashes) >= 0 AND attempts < 2000000000 AND crashes < 2000000000
       AND waiters < 2000000000 AND rank BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308
       AND keep_for BETWEEN 0 AND 18014398509481
$$;

CREATE FUNCTION is_name(queue text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT queue ~ '\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z'
$$;

CREATE FUNCTION is_number(value bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT value BETWEEN 0 AND 18014398509481983
$$;

-- What is wrong with a record, in words.
CREATE FUNCTION flaws(j jobs) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'unreadable record: ' || coalesce(nullif(concat_ws(', ',
        CASE WHEN NOT is_number(j.id) THEN 'id is ' || j.id END,
        CASE WHEN NOT is_name(j.queue) THEN 'queue is no name' END,
        CASE WHEN j.state NOT BETWEEN 0 AND 4 THEN 'state is ' || j.state END,
        CASE WHEN NOT j.rank BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308 THEN 'rank is ' || j.rank END,
        CASE WHEN j.state <> 0 AND NOT j.sort BETWEEN 0 AND 18014398509481984 THEN 'its moment is ' || j.sort
             WHEN j.state = 1 AND j.sort <> j.start_time THEN 'start_time is not ' || j.sort || ', by which it waits' END,
        CASE WHEN NOT is_number(j.cost) THEN 'cost is ' || j.cost END,
        CASE WHEN j.attempts NOT BETWEEN 0 AND 1999999999 THEN 'attempts is ' || j.attempts END,
        CASE WHEN j.crashes NOT BETWEEN 0 AND 1999999999 THEN 'crashes is ' || j.crashes END,
        CASE WHEN j.fresh_at < 0 THEN 'fresh_at is ' || j.fresh_at END,
        CASE WHEN j.waiters NOT BETWEEN 0 AND 1999999999 THEN 'waiters is ' || j.waiters END,
        CASE WHEN NOT is_number(j.created_at) THEN 'created_at is ' || j.created_at END,
        CASE WHEN NOT is_number(j.start_time) THEN 'start_time is ' || j.start_time END,
        CASE WHEN NOT is_number(j.prev_start_time) THEN 'prev_start_time is ' || j.prev_start_time END,
        CASE WHEN NOT j.keep_for BETWEEN 0 AND 18014398509481 THEN 'keep_for is ' || j.keep_for END
    ), ''), 'it fits nowhere')
$$;

-- Make these jobs dead, which are locked. Numbers that cannot be read become 0; attempts become more than any token that
-- was ever given for the job, so that none fits again.
CREATE FUNCTION set_aside(moment bigint, ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    j        jobs;
    its_id   bigint;
    its_line text;
BEGIN
    FOR j IN SELECT * FROM jobs WHERE id = ANY (ids) LOOP
        its_id := CASE WHEN is_number(j.id) THEN j.id ELSE nextval('job_ids') END;
        its_line := CASE WHEN is_name(j.queue) THEN j.queue ELSE 'unreadable-queue' END;
        UPDATE waiters SET job = its_id WHERE job = j.id AND its_id <> j.id;
        UPDATE jobs
        SET id = its_id, queue = its_line, state = 3, sort = moment, ended_at = moment, reason = flaws(j),
            rank = CASE WHEN rank BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308 THEN rank ELSE 0 END,
            cost = CASE WHEN is_number(cost) THEN cost ELSE 0 END,
            attempts = CASE WHEN attempts BETWEEN 0 AND 1999999999 THEN attempts ELSE 1073741824 END,
            crashes = CASE WHEN crashes BETWEEN 0 AND 1999999999 THEN crashes ELSE 0 END,
            fresh_at = greatest(fresh_at, 0),
            waiters = (SELECT count(*) FROM waiters WHERE job = its_id),
            created_at = CASE WHEN is_number(created_at) THEN created_at ELSE 0 END,
            start_time = CASE WHEN is_number(start_time) THEN start_time ELSE 0 END,
            prev_start_time = CASE WHEN is_number(prev_start_time) THEN prev_start_time END,
            taken_at = CASE WHEN is_number(taken_at) THEN taken_at END,
            keep_for = CASE WHEN keep_for BETWEEN 0 AND 18014398509481 THEN keep_for ELSE 0 END
        WHERE id = j.id;
        IF j.state BETWEEN 0 AND 4 AND its_line = j.queue THEN
            PERFORM count_up(j.queue, -(j.state = 0)::int, -(j.state = 1)::int, -(j.state = 2)::int,
                             1 - (j.state = 3)::int, d_buried => 1);
        ELSE  -- nobody knows where it was counted
            PERFORM count_up(its_line, 0, 0, 0, d_buried => 1);
            PERFORM recount(q) FROM (SELECT DISTINCT q FROM unnest(ARRAY[its_line, j.queue]) AS u(q) WHERE is_name(q)) n;
        END IF;
    END LOOP;
END $$;

-- Put the counters of a queue right. Jobs and counters are read by one statement, so from one snapshot, in which both
-- have what was committed together; the lock keeps two of these from making up for the same difference.
CREATE FUNCTION recount(q text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1097032548, hashtext(current_schema() || q));
    INSERT INTO counts (queue, ready, delayed, taken, dead)
    SELECT q, there.ready - counted.ready, there.delayed - counted.delayed, there.taken - counted.taken,
           there.dead - counted.dead
    FROM (
        SELECT count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state = 1) AS delayed,
               count(*) FILTER (WHERE state = 2) AS taken, count(*) FILTER (WHERE state = 3) AS dead
        FROM jobs WHERE queue = q
    ) there, (
        SELECT coalesce(sum(ready), 0) AS ready, coalesce(sum(delayed), 0) AS delayed, coalesce(sum(taken), 0) AS taken,
               coalesce(sum(dead), 0) AS dead
        FROM counts WHERE queue = q
    ) counted;
END $$;

-- Set aside, up to `most`, the records that no other call would come to: in no state, waiting for a moment that never
-- comes, in a line with no name. Answer: how many.
CREATE FUNCTION gather_strays(moment bigint, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    q      text;
    which  integer;
    strays bigint[];
    done   bigint := 0;
BEGIN
    SELECT j.queue INTO q FROM jobs j ORDER BY j.queue LIMIT 1;
    WHILE q IS NOT NULL AND done < most LOOP
        IF NOT is_name(q) THEN
            strays := ARRAY(SELECT j.id FROM jobs j WHERE j.queue = q LIMIT most - done FOR UPDATE SKIP LOCKED);
        ELSE
            strays := ARRAY(SELECT j.id FROM jobs j WHERE j.queue = q AND j.state > 4
                           LIMIT most - done FOR UPDATE SKIP LOCKED)
                  || ARRAY(SELECT j.id FROM jobs j WHERE j.queue = q AND j.state < 0
                           LIMIT most - done FOR UPDATE SKIP LOCKED);
            FOR which IN 1 .. 4 LOOP
                strays := strays || ARRAY(
                    SELECT j.id FROM jobs j WHERE j.queue = q AND j.state = which AND j.sort > 18014398509481984
                    LIMIT most - done FOR UPDATE SKIP LOCKED
                );
            END LOOP;
            IF NOT EXISTS (SELECT FROM counts c WHERE c.queue = q) THEN
                PERFORM recount(c.queue) FROM (SELECT DISTINCT c.queue FROM counts c UNION SELECT q) c;
            END IF;
        END IF;
        IF cardinality(strays) > 0 THEN
            PERFORM set_aside(moment, strays);
            done := done + cardinality(strays);
        END IF;
        q := (SELECT j.queue FROM jobs j WHERE j.queue > q ORDER BY j.queue LIMIT 1);  -- one look into the index
    END LOOP;
    RETURN done;
END $$;
