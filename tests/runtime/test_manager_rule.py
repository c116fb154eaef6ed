"""The manager's rule: how many processors each queue gets, and where."""

import doctest
import random
from itertools import chain, combinations, product
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accoda.runtime.manager import Assignment, QueueView, Rule, Situation, WorkerView, assign, limits, rule
from accoda.runtime.manager.rule import has_jobs, level, totals, work

QUEUES = ("a", "b", "c", "d")


def worker(id: str = "w1", processors: int = 4, queues: tuple[str, ...] = QUEUES, **caps: int) -> WorkerView:
    return WorkerView(id, processors, queues, caps)


def busy(ready: int, service: float = 1.0) -> QueueView:
    return QueueView(ready=ready, service=service)


def given_to(queues: dict[str, QueueView], *workers: WorkerView) -> dict[str, int]:
    return totals(assign(Situation(queues, workers)).workers)


def moves(old: Assignment, new: Assignment) -> int:
    """How many processors got another queue."""
    before = {(w, q): n for w, row in old.workers.items() for q, n in row.items()}
    after = {(w, q): n for w, row in new.workers.items() for q, n in row.items()}
    return sum(max(0, count - before.get(place, 0)) for place, count in after.items())


def test_processors_level_the_drain_time() -> None:
    assert given_to({"a": busy(300), "b": busy(100)}, worker(), worker("w2")) == {"a": 6, "b": 2}


def test_long_jobs_count_for_more() -> None:
    assert given_to({"a": busy(100, service=3.0), "b": busy(100, service=1.0)}, worker(processors=8)) == {
        "a": 6,
        "b": 2,
    }


def test_a_queue_with_one_small_job_gets_a_processor_beside_a_huge_one() -> None:
    assert given_to({"a": busy(1_000_000), "b": busy(1, service=0.001)}, worker()) == {"a": 3, "b": 1}


def test_jobs_that_only_run_keep_one_too() -> None:
    assert given_to({"a": busy(1_000), "b": QueueView(taken=2)}, worker())["b"] == 1


def test_jobs_that_are_expected_count_as_work() -> None:
    queues = {"a": busy(100), "b": QueueView(arrivals=25.0)}
    assert given_to(queues, worker()) == {"a": 2, "b": 2}


def test_few_expected_jobs_reserve_nothing() -> None:
    assert given_to({"a": busy(100), "b": QueueView(arrivals=0.1)}, worker()) == {"a": 4}


def test_a_queue_gets_no_more_processors_than_it_has_jobs() -> None:
    assert given_to({"a": busy(2, service=100.0), "b": busy(5)}, worker(processors=8))["a"] == 2


def test_queues_that_drain_soon_leave_processors_to_the_others() -> None:
    assert given_to({"a": busy(10, service=0.1)}, worker()) == {"a": 1}


def test_a_cap_holds_in_each_worker() -> None:
    queues = {"a": busy(1000), "b": busy(10)}
    assignment = assign(Situation(queues, (worker("w1", a=1), worker("w2", a=2))))
    assert (assignment.workers["w1"]["a"], assignment.workers["w2"]["a"]) == (1, 2)


def test_a_queue_stuck_at_its_cap_does_not_hide_what_others_could_gain() -> None:
    workers = (worker(processors=7, a=1),)
    before = assign(Situation({"a": busy(10_000), "b": busy(100), "c": busy(100)}, workers))
    after = assign(Situation({"a": busy(10_000), "b": busy(500), "c": busy(100)}, workers), before)
    assert (totals(before.workers), totals(after.workers)) == ({"a": 1, "b": 3, "c": 3}, {"a": 1, "b": 5, "c": 1})


def test_one_queue_moves_aside_for_another_that_has_no_other_place() -> None:
    anywhere, here_only = worker("w1", 2, ("a", "b")), worker("w2", 2, ("a",))
    assignment = assign(Situation({"a": busy(100), "b": busy(90)}, (anywhere, here_only)))
    assert assignment.workers == {"w1": {"b": 2}, "w2": {"a": 2}}


def test_queues_without_a_worker_and_workers_without_processors_are_left_out() -> None:
    assignment = assign(Situation({"x": busy(100), "a": busy(100)}, (worker("w1", 1), worker("w2", 0))))
    assert assignment.workers == {"w1": {"a": 1}, "w2": {}}
    assert assignment.plans["x"].drain is None
    assert assign(Situation({"a": busy(1)}, ())).workers == {}


def test_noise_around_equality_changes_nothing() -> None:
    chance = random.Random(1)
    workers = (worker("w1", 20), worker("w2", 20))
    first = assignment = assign(Situation({"a": busy(1000), "b": busy(1000)}, workers))
    ideal = set()
    for _ in range(200):
        now = Situation({name: busy(round(1000 * chance.uniform(0.9, 1.1))) for name in ("a", "b")}, workers)
        assignment = assign(now, assignment)
        assert assignment.workers == first.workers
        ideal.add(totals(assign(now).workers)["a"])
    assert len(ideal) > 1  # without a memory it would have moved


def test_a_nearly_idle_system_is_left_alone() -> None:
    workers = (worker(),)
    assignment = assign(Situation({"a": busy(2, 0.1), "b": busy(1, 0.1)}, workers))
    again = assign(Situation({"a": busy(1, 0.1), "b": busy(15, 0.1)}, workers), assignment)
    assert again.workers == assignment.workers


def test_a_change_that_is_worth_it_is_made() -> None:
    workers = (worker("w1"), worker("w2"))
    assignment = assign(Situation({"a": busy(1000), "b": busy(1000)}, workers))
    assignment = assign(Situation({"a": busy(3000), "b": busy(1000)}, workers), assignment)
    assert totals(assignment.workers) == {"a": 6, "b": 2}


def test_a_queue_that_gets_work_gets_a_processor_at_once() -> None:
    workers = (worker("w1"), worker("w2"))
    before = assign(Situation({"a": busy(1000), "b": busy(0)}, workers))
    after = assign(Situation({"a": busy(1000), "b": busy(1)}, workers), before)
    assert totals(after.workers) == {"a": 7, "b": 1}
    assert moves(before, after) == 1


def test_a_queue_that_is_empty_gives_its_processors_back_to_one_in_need() -> None:
    workers = (worker("w1"), worker("w2"))
    before = assign(Situation({"a": busy(1000), "b": busy(10)}, workers))
    quiet = QueueView(arrivals=0.02)
    after = assign(Situation({"a": quiet, "b": busy(1000)}, workers), before)
    assert totals(after.workers)["b"] == 8


def test_a_worker_that_comes_or_goes_is_seen_at_once_and_the_others_keep_their_queues() -> None:
    queues = {"a": busy(900), "b": busy(300)}
    one = assign(Situation(queues, (worker("w1"),)))
    two = assign(Situation(queues, (worker("w1"), worker("w2"))), one)
    assert two.workers["w1"] == one.workers["w1"]
    back = assign(Situation(queues, (worker("w2"),)), two)
    assert back.workers.keys() == {"w2"}
    assert moves(two, back) <= 1


def test_processors_stay_where_they_were() -> None:
    old = Assignment({"w1": {"a": 4}, "w2": {"b": 4}})
    new = assign(Situation({"a": busy(500), "b": busy(290)}, (worker("w1"), worker("w2"))), old)
    assert new.workers == {"w1": {"a": 4}, "w2": {"a": 1, "b": 3}}


def test_a_smaller_cap_is_obeyed_at_once() -> None:
    queues = {"a": busy(1000), "b": busy(1000)}
    assignment = assign(Situation(queues, (worker(),)))
    assignment = assign(Situation(queues, (worker(a=1),)), assignment)
    assert assignment.workers == {"w1": {"a": 1, "b": 3}}


def test_a_queue_is_spread_evenly() -> None:
    assignment = assign(Situation({"a": busy(1000), "b": busy(1000)}, (worker("w1"), worker("w2"))))
    assert assignment.workers == {"w1": {"a": 2, "b": 2}, "w2": {"a": 2, "b": 2}}


class TestLimits:
    assignment = Assignment({"w1": {"a": 3, "b": 1}})

    def test_a_queue_may_have_what_it_was_given_and_others_one(self) -> None:
        assert limits(self.assignment, "w1", ["a", "b", "c"], 4) == {"a": 3, "b": 1, "c": 1}

    def test_processors_that_no_queue_was_given_are_there_for_all(self) -> None:
        assert limits(self.assignment, "w1", ["a", "b", "c"], 6) == {"a": 5, "b": 3, "c": 2}

    def test_a_worker_that_is_not_named_goes_on_as_before(self) -> None:
        assert limits(self.assignment, "w9", ["a", "b"], 4) == {"a": 4, "b": 4}

    def test_a_worker_that_has_shrunk_since_gets_no_negative_number(self) -> None:
        assert limits(self.assignment, "w1", ["a", "c"], 2) == {"a": 3, "c": 1}


def test_the_examples_in_the_docstrings_hold() -> None:
    found = doctest.testmod(rule)
    assert found.attempted and not found.failed


# -- any situation at all

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # whatever else the machine does
names = st.sampled_from(QUEUES)
views = st.builds(
    QueueView,
    ready=st.one_of(st.just(0), st.integers(0, 12), st.integers(0, 10**7)),
    taken=st.integers(0, 3),
    service=st.floats(0.0, 100.0),
    arrivals=st.floats(0.0, 500.0),
)


@st.composite
def fleets(draw: st.DrawFn, processors: int = 6) -> tuple[WorkerView, ...]:
    """Up to three workers of different kinds, some of them twice."""
    found: list[WorkerView] = []
    for _ in range(draw(st.integers(0, 3))):
        total = draw(st.integers(0, processors))
        queues = tuple(sorted(draw(st.sets(names))))
        caps = draw(st.dictionaries(names, st.integers(0, 4)))
        for _ in range(draw(st.integers(1, 2))):
            found.append(WorkerView(f"w{len(found)}", total, queues, caps))
    return tuple(found)


situations = st.builds(Situation, queues=st.dictionaries(names, views), workers=fleets())


def fits(demand: dict[str, int], workers: tuple[WorkerView, ...]) -> bool:
    """Whether there is room for so many processors: no set of queues asks for more than its workers can give."""
    sets = chain.from_iterable(combinations(demand, size) for size in range(1, len(demand) + 1))
    return all(
        sum(min(max(0, w.max_processors), sum(w.most(q) for q in some)) for w in workers)
        >= sum(demand[q] for q in some)
        for some in sets
    )


@patient
@given(situations, st.none() | situations)
def test_no_worker_is_given_more_than_it_has_or_may(now: Situation, before: Situation | None) -> None:
    assignment = assign(now, assign(before) if before else None)
    assert assignment.workers.keys() == {w.id for w in now.workers}
    for w in now.workers:
        row = assignment.workers[w.id]
        assert sum(row.values()) <= w.max_processors
        assert all(0 < count <= w.most(queue) for queue, count in row.items())


@patient
@given(situations, st.none() | situations)
def test_every_queue_with_jobs_has_a_processor_where_there_are_enough(now: Situation, before: Situation | None) -> None:
    needy = {name: 1 for name, view in now.queues.items() if has_jobs(view)}
    assignment = assign(now, assign(before) if before else None)
    if fits(needy, now.workers):
        assert needy.keys() <= totals(assignment.workers).keys()


@patient
@given(situations, st.none() | situations)
def test_an_unchanged_situation_changes_nothing(now: Situation, before: Situation | None) -> None:
    assignment = assign(now, assign(before) if before else None)
    assert assign(now, assignment) == assignment == assign(now, assign(before) if before else None)


small = st.builds(
    Situation,
    queues=st.dictionaries(st.sampled_from("abc"), st.builds(QueueView, ready=st.integers(1, 30)), min_size=1),
    workers=fleets(processors=2),
)


@settings(patient, max_examples=60)
@given(small)
def test_no_other_arrangement_has_a_shorter_longest_drain_time(now: Situation) -> None:
    greedy = Rule(enough=0.0)
    loads = {name: work(view, greedy) for name, view in now.queues.items()}
    if not fits(dict.fromkeys(loads, 1), now.workers):
        return
    total = sum(w.max_processors for w in now.workers)
    choices = [range(1, min(total, ceil(load)) + 1) for load in loads.values()]
    shortest = min(
        max(load / count for load, count in zip(loads.values(), counts, strict=True))
        for counts in product(*choices)
        if fits(dict(zip(loads, counts, strict=True)), now.workers)
    )
    found = level(now, greedy)
    assert max(loads[name] / found[name] for name in loads) == pytest.approx(shortest)
