-- pause: hand out nothing of this queue until a moment. NULL: until it is resumed; one that has gone resumes it, which
-- does not make an unknown queue. Waiting callers are woken: the end of the pause is a new moment to wake at.
CREATE FUNCTION pause(at bigint, q text, moment bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF moment <= present(at) THEN
        UPDATE pauses SET until = 0 WHERE queue = q;
    ELSE
        INSERT INTO pauses (queue, until) VALUES (q, coalesce(moment, 9223372036854775807))
        ON CONFLICT (queue) DO UPDATE SET until = excluded.until;
    END IF;
    PERFORM notify_queues(ARRAY[q]);
END $$;
