"""How outcomes with many follow-ups are settled."""

from accoda import Bury, Done, Lease, NewJob, Retry
from accoda.model import Outcome
from accoda.queue_access import portions


def test_a_batch_with_many_follow_ups_is_settled_in_parts() -> None:
    def done(id: int, follow_ups: int) -> Done:
        return Done(Lease("q", id, 0, 0), (NewJob("q.x"),) * follow_ups)

    outcomes: list[Outcome] = [
        done(1, 600),
        done(2, 400),
        done(3, 1),
        done(4, 5000),
        Retry(Lease("q", 5, 0, 0)),
        done(6, 9),
        Bury(Lease("q", 7, 0, 0), "x", (NewJob("q.x"),) * 991),
        Bury(Lease("q", 8, 0, 0), "x", (NewJob("q.x"),)),
    ]
    parts = [[outcome.lease.id for outcome in part] for part in portions(outcomes)]
    assert parts == [[1, 2], [3], [4], [5, 6, 7], [8]]
