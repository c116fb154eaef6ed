"""How a settle over several shards is cut into steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from accoda import Bury, Done, Lease, NewJob, Retry
from accoda.limits import MOST
from accoda.model import REPORTS
from accoda.storage.redis.cross_slot import Runs, Step, cut
from accoda.storage.redis.keys import Keys, family
from accoda.storage.redis.outbox import Run, seal, unseal

KEYS = Keys("accoda")


def steps_of(*outcomes: Done | Retry | Bury) -> tuple[list[Step], Runs]:
    numbers = count(1)
    sources = [KEYS.cluster_shard(family(outcome.lease.queue), 7) for outcome in outcomes]
    tags = [tags_of(outcome.then) for outcome in outcomes]
    return cut(outcomes, sources, tags, lambda: f"run{next(numbers)}")


def tags_of(jobs: Sequence[NewJob]) -> list[str]:
    """Queues with a number in their name are in the partition with this number."""
    return [family(job.queue) + "".join(f"/{each}" for each in job.queue if each.isdigit()) for job in jobs]


def ways(step: Step) -> list[tuple[int, str, str]]:
    """The outcomes that send something, with which run, and to which shard."""
    return [(post.place, post.run.name, post.tag) for post in step.posts]


def test_a_shard_knows_its_tag() -> None:
    for tag in ("deals", "deals/2"):
        assert KEYS.cluster_shard(tag, 7).tag == tag


def test_what_stays_is_a_follow_up_and_what_leaves_is_posted() -> None:
    lease, result = Lease("a", 1, 0, 0), b"result"
    stays, leaves = NewJob("a.next", b"stays"), NewJob("b", b"leaves")
    (step,), ((run, home),) = steps_of(Done(lease, [leaves, stays, leaves], result, waiters=2))
    assert step.outcomes == [Done(lease, [stays], result, waiters=2)]
    assert [(post.place, post.run, post.jobs) for post in step.posts] == [(0, run, [leaves, leaves])]
    assert unseal("run1", step.posts[0].sealed() * 2, tags_of) == Run("run1", {"b": [leaves] * 4})
    assert (run.jobs, home.tag) == ({}, "a")


def test_an_outcome_whose_follow_ups_all_leave_stores_nothing() -> None:
    (step,), runs = steps_of(
        Bury(Lease("a", 1, 0, 0), "x", [NewJob("b"), NewJob("c"), NewJob("b")]), Retry(Lease("a", 2, 0, 0))
    )
    assert [outcome.then for outcome in step.outcomes if isinstance(outcome, Bury)] == [[]]
    assert [run.name for run, _ in runs] == ["run1", "run2"]
    assert ways(step) == [(0, "run1", "b"), (0, "run2", "c")]
    assert [len(post.jobs) for post in step.posts] == [2, 1]


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
    assert [home.tag for _, home in runs] == ["a", "b"]
    assert [ways(step) for step in steps] == [[(1, "run2", "b")], [(0, "run1", "b")]]


def test_what_a_third_shard_sends_in_between_keeps_its_place() -> None:
    _, runs = steps_of(*(Done(Lease(queue, 1, 0, 0), [NewJob("b")]) for queue in ("a", "c", "a")))
    assert [(run.name, home.tag) for run, home in runs] == [("run1", "a"), ("run2", "c"), ("run3", "a")]


def test_a_retry_sends_what_follows_it_as_an_end_does() -> None:
    stays, leaves = NewJob("a.next"), NewJob("b")
    (step,), _ = steps_of(Retry(Lease("a", 1, 0, 0), delay=5.0, then=[leaves, stays]))
    assert step.outcomes == [Retry(Lease("a", 1, 0, 0), delay=5.0, then=[stays])]
    assert ways(step) == [(0, "run1", "b")]


def test_what_goes_to_partitions_of_the_flows_leaves_with_one_run_that_takes_the_reports() -> None:
    flows = [NewJob(f"{REPORTS}.{n}") for n in (1, 2)]
    (step,), runs = steps_of(
        Done(Lease("a", 1, 0, 0), [NewJob("b"), *flows]), Done(Lease("a", 2, 0, 0), [NewJob("b1"), NewJob("b2")])
    )
    assert [run.name for run, _ in runs] == ["run1", "run2", "run3", "run4"]
    assert ways(step) == [
        (0, "run1", "b"), (0, "run2", "accoda/1"), (0, "run2", "accoda/2"), (1, "run3", "b1/1"), (1, "run4", "b2/2"),
    ]  # fmt: skip
    assert [post.takes_reports for post in step.posts] == [False, True, True, False, False]


class TestASealedRun:
    def test_has_reports_behind_its_jobs(self) -> None:
        job = NewJob("accoda.x", b"first")
        sealed = seal("accoda", [job]) + b"9,13:fl\xc3\xb6w, 1:done 7 0 1 2\n2,1:f2x"
        run = unseal("run1", sealed, tags_of)
        assert run.jobs["accoda"][0] == job
        reports = run.jobs["accoda"][1:]
        assert [(each.queue, each.key, each.on_duplicate, each.waiter, each.data) for each in reports] == [
            (REPORTS, "flöw, 1:", "attach", b"done 7 0 1 2\n", b""),
            (REPORTS, "f2", "attach", b"x", b""),
        ]

    def test_has_reports_of_any_size(self) -> None:
        text = b"x" * (MOST.waiter + 1)
        run = unseal("run1", b"1,%d:f%b" % (len(text), text), tags_of)
        assert [each.waiter for each in run.jobs["accoda"]] == [text]

    def test_loses_no_report_because_the_key_of_another_is_damaged(self) -> None:
        run = unseal("run1", b"2,1:\xff\xfea" + b"600,1:" + b"k" * 600 + b"b" + b"4,1:flowc", tags_of)
        assert [(each.key, each.waiter) for each in run.jobs["accoda"]] == [
            ("\ufffd\ufffd", b"a"), ("k" * 512, b"b"), ("flow", b"c"),
        ]  # fmt: skip

    @pytest.mark.parametrize("text", [b"4,9:flow", b"4,:flow", b"flow", b"4,5", b"9999999999999,1:x", b"5:ab"])
    def test_that_is_damaged_cannot_be_read(self, text: bytes) -> None:
        with pytest.raises(ValueError):
            unseal("run1", text, tags_of)
