"""How a settle over several shards is cut into steps."""

from __future__ import annotations

from itertools import count

from accoda import Bury, Done, Lease, NewJob, Retry
from accoda.storage.redis.cross_slot import Runs, Step, cut
from accoda.storage.redis.keys import Keys, family
from accoda.storage.redis.outbox import Run, unseal

KEYS = Keys("accoda")


def steps_of(*outcomes: Done | Retry | Bury) -> tuple[list[Step], Runs]:
    numbers = count(1)
    sources = [KEYS.cluster_shard(family(outcome.lease.queue), 7) for outcome in outcomes]
    tags = [[family(job.queue) for job in getattr(outcome, "then", ())] for outcome in outcomes]
    return cut(outcomes, sources, tags, lambda: f"run{next(numbers)}")


def test_a_shard_knows_its_tag() -> None:
    for tag in ("deals", "deals/2"):
        assert KEYS.cluster_shard(tag, 7).tag == tag


def test_what_stays_is_a_follow_up_and_what_leaves_is_posted() -> None:
    lease, result = Lease("a", 1, 0, 0), b"result"
    stays, leaves = NewJob("a.next", b"stays"), NewJob("b", b"leaves")
    (step,), ((run, home),) = steps_of(Done(lease, [leaves, stays, leaves], result, waiters=2))
    assert step.outcomes == [Done(lease, [stays], result, waiters=2)]
    assert [(post.place, post.run, post.jobs) for post in step.posts] == [(0, run, [leaves, leaves])]
    assert unseal("run1", step.posts[0].sealed() * 2) == Run("run1", "b", [leaves] * 4)
    assert (run.tag, run.jobs, home.tag) == ("b", [], "a")


def test_an_outcome_whose_follow_ups_all_leave_stores_nothing() -> None:
    (step,), runs = steps_of(
        Bury(Lease("a", 1, 0, 0), "x", [NewJob("b"), NewJob("c"), NewJob("b")]), Retry(Lease("a", 2, 0, 0))
    )
    assert [outcome.then for outcome in step.outcomes if isinstance(outcome, Bury)] == [[]]
    assert [run.tag for run, _ in runs] == ["b", "c"]
    assert [(post.run.name, len(post.jobs)) for post in step.posts] == [("run1", 2), ("run2", 1)]


def test_each_shard_has_one_step_that_knows_the_places_of_its_outcomes() -> None:
    follows = [NewJob("b")]
    outcomes = [Done(Lease(queue, n, 0, 0), follows) for n, queue in enumerate(("a", "b", "a.x", "c"))]
    steps, runs = steps_of(*outcomes)
    assert [(step.shard.tag, step.places) for step in steps] == [("a", [0, 2]), ("b", [1]), ("c", [3])]
    assert [(run.name, home.tag) for run, home in runs] == [("run1", "a"), ("run2", "b"), ("run3", "a"), ("run4", "c")]
    assert [[(post.place, post.run.name) for post in step.posts] for step in steps] == [
        [(0, "run1"), (1, "run3")],
        [(0, "run2")],
        [(0, "run4")],
    ]


def test_outcomes_of_one_shard_share_a_run_of_which_each_has_its_part() -> None:
    (step,), runs = steps_of(*(Done(Lease("a", n, 0, 0), [NewJob("b"), NewJob("a")]) for n in range(3)))
    assert len(runs) == 1
    assert [(post.place, post.run.name, len(post.jobs)) for post in step.posts] == [(n, "run1", 1) for n in range(3)]


def test_what_stays_waits_its_turn_behind_what_another_shard_sends() -> None:
    first, second, third = (NewJob("b", data) for data in (b"1", b"2", b"3"))
    steps, runs = steps_of(
        Done(Lease("b", 1, 0, 0), [first]), Done(Lease("a", 2, 0, 0), [second]), Done(Lease("b", 3, 0, 0), [third])
    )
    assert [(step.shard.tag, step.outcomes) for step in steps] == [
        ("b", [Done(Lease("b", 1, 0, 0), [first]), Done(Lease("b", 3, 0, 0), [])]),
        ("a", [Done(Lease("a", 2, 0, 0), [])]),
    ]
    assert [(run.tag, home.tag) for run, home in runs] == [("b", "a"), ("b", "b")]


def test_what_a_third_shard_sends_in_between_keeps_its_place() -> None:
    _, runs = steps_of(*(Done(Lease(queue, 1, 0, 0), [NewJob("b")]) for queue in ("a", "c", "a")))
    assert [(run.name, home.tag) for run, home in runs] == [("run1", "a"), ("run2", "c"), ("run3", "a")]
