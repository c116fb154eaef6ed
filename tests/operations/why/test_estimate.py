"""The estimate, from snapshots made by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from accoda.budget import Budget
from accoda.budget.model import Account
from accoda.model import JobInfo, Look, QueueStats, State
from accoda.operations.history.reading import ServiceRate
from accoda.operations.why import Estimate, Snapshot, explain
from accoda.operations.why.estimate import start_of
from accoda.operations.why.fleet import fleet_of
from accoda.operations.why.snapshot import QueueBudget
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, QueueRate
from accoda.runtime.manager.rule import Assignment

NOW = 1_893_488_400_000


def job(state: State = "ready", **facts: Any) -> JobInfo:
    told = {"rank": 2.0, "cost": 0, "key": None, "attempts": 0, "created_at": NOW, "start_time": NOW}
    return JobInfo(17, "emails", state, b"", **{**told, "prev_start_time": None, "waiters": 0, **facts})


def worker(**facts: Any) -> Heartbeat:
    busy = (ProcessorState("emails", 1, 1, NOW - 500), ProcessorState("emails", 1, 2, NOW - 1500))
    told = {"max_processors": 2, "processors": busy, "rates": {"emails": QueueRate(100.0, 200.0)}, **facts}
    queues = told.pop("queues", ("emails",))
    told.setdefault("slots", told["max_processors"])
    told.setdefault("free", told["slots"] - sum(state.jobs for state in told["processors"]))
    return Heartbeat("w1", "w1", "host", 1, NOW - 600_000, NOW, queues, **told)


def snapshot(ahead: int = 10, **facts: Any) -> Snapshot:
    look = Look(NOW, facts.pop("job", job()), ahead=ahead)
    queues = {"emails": QueueStats(ready=ahead + 1, taken=2)}
    return Snapshot(look=look, **{"queues": queues, "workers": (worker(),), **facts})


def start(found: Snapshot) -> Estimate:
    answer = start_of(found)
    assert answer is not None
    return answer


def test_ten_jobs_of_two_seconds_take_two_processors_ten_seconds() -> None:
    answer = start(snapshot(10))
    assert 9 < answer.likely < 13 and answer.low < 9 and answer.high > 13


def test_twice_as_many_ahead_take_twice_as_long_and_the_range_grows_less() -> None:
    short, long = start(snapshot(20)), start(snapshot(40))
    assert 1.8 < long.likely / short.likely < 2.2
    assert (long.high - long.low) / long.likely < (short.high - short.low) / short.likely


def test_more_processors_make_it_sooner_and_a_cap_does_not() -> None:
    one = start(snapshot(10))
    eight = snapshot(10, workers=(worker(max_processors=8, processors=(ProcessorState("emails", 1, 1, NOW),) * 8),))
    assert start(eight).likely < one.likely / 2
    capped = replace(eight, workers=(replace(eight.workers[0], caps={"emails": 2}),))
    assert start(capped).likely == pytest.approx(one.likely, rel=0.3)


def test_ten_slots_take_ten_jobs_of_two_seconds_at_once() -> None:
    running = (ProcessorState("emails", 10, 1, NOW - 1000, 10),)
    rates = {"emails": QueueRate(100.0, 20.0)}  # a job of two seconds keeps a tenth of the processor busy
    slots = worker(max_processors=1, slots=10, processors=running, rates=rates)
    assert 0.9 < start(snapshot(0, workers=(slots,))).likely < 1.3  # the oldest has another second to go
    assert 20 < start(snapshot(100, workers=(slots,))).likely < 25


def test_jobs_of_batches_come_ten_at_a_time() -> None:
    running = (ProcessorState("emails", 10, 1, NOW, 10),)
    rates = {"emails": QueueRate(100.0, 20.0)}
    batches = worker(max_processors=1, slots=0, batches={"emails": 10}, processors=running, rates=rates)
    first, ninth, tenth = (start(snapshot(ahead, workers=(batches,))).likely for ahead in (0, 9, 10))
    assert first == ninth and 1.9 < first < 2.3 and 3.9 < tenth < 4.6


def test_a_batch_runs_beside_the_slots() -> None:
    slots = worker(queues=("emails", "reports"), slots=2, batches={"reports": 100}, max_processors=1)
    queues = {"emails": QueueStats(ready=11), "reports": QueueStats(ready=5000)}
    assert fleet_of(snapshot(10, workers=(slots,), queues=queues)).share == 1


def test_the_rate_of_late_counts_as_far_as_the_queue_had_work() -> None:
    slow = ServiceRate(0.25, 0.2, 0.3, 2.0, 120.0)
    queues = {"emails": QueueStats(ready=11, taken=2, oldest_age=120.0)}
    seen, unseen = snapshot(10, rate=slow, queues=queues), snapshot(10, queues=queues)
    assert start(seen).likely > 1.8 * start(unseen).likely
    idle = {"emails": QueueStats(ready=11, taken=2, oldest_age=1.0)}
    assert start(snapshot(10, rate=slow, queues=idle)).likely < 1.2 * start(unseen).likely


def test_without_a_worker_of_its_own_only_the_rate_of_a_queue_counts() -> None:
    rate = ServiceRate(2.0, 1.0, 3.0, 1.0, 60.0)
    assert 4 < start(snapshot(10, workers=(), rate=rate)).likely < 6
    assert start_of(snapshot(10, workers=())) is None


def test_other_queues_with_work_take_their_share() -> None:
    both = worker(queues=("emails", "reports"), rates={q: QueueRate(100.0, 200.0) for q in ("emails", "reports")})
    queues = {"emails": QueueStats(ready=11), "reports": QueueStats(ready=50)}
    alone = snapshot(10, workers=(both,))
    shared = snapshot(10, workers=(both,), queues=queues)
    assert fleet_of(shared).share == pytest.approx(fleet_of(alone).share / 2)
    given = snapshot(10, workers=(both,), queues=queues, assignment=Assignment({"w1": {"emails": 2}}))
    assert fleet_of(given).share == 2
    nothing = snapshot(10, workers=(both,), queues=queues, assignment=Assignment({"w1": {"reports": 2}}))
    assert fleet_of(nothing).share < 0.5


def test_jobs_that_overtake_make_it_later() -> None:
    plain = snapshot(10, job=job(created_at=NOW - 40_000))
    overtaken = replace(plain, look=replace(plain.look, newer=10))
    assert start(overtaken).likely > start(plain).likely


def test_while_it_is_delayed_jobs_ahead_run() -> None:
    delayed = job("delayed", start_time=NOW + 60_000)
    assert 60 <= start(snapshot(10, job=delayed)).likely < 63
    assert 90 < start(snapshot(100, job=delayed)).likely < 130


def test_after_a_pause_all_of_them_are_still_there() -> None:
    queues = {"emails": QueueStats(ready=11, paused=True, paused_until=NOW + 60_000)}
    assert 69 < start(snapshot(10, queues=queues)).likely < 73
    assert start_of(snapshot(10, queues={"emails": QueueStats(ready=11, paused=True)})) is None


@pytest.mark.parametrize(
    ("rhythm", "seconds"),
    [
        ({}, 55.0),  # one token a second: eleven jobs at 5
        ({"step_at": NOW + 4000}, 54.0),  # ten tokens in 4 s, and then every 10 s
        ({"reset_at": NOW + 4000}, 24.0),  # twenty in 4 s, and then every 10 s
    ],
)
def test_tokens_come_in_by_their_rhythm(rhythm: dict[str, int], seconds: float) -> None:
    account = Account(20.0, 10.0, 10.0, 0.0, NOW, **rhythm)
    budgets = (QueueBudget(Budget("keepa", 20, 10, 10), account),)
    answer = start(snapshot(10, job=job(cost=5), head=job(cost=5), budgets=budgets))
    assert answer.likely == pytest.approx(seconds, abs=0.1) and answer.low < seconds < answer.high


def test_a_rate_over_a_short_time_counts_little() -> None:
    queues = {"emails": QueueStats(ready=11, taken=2, oldest_age=120.0)}
    brief, long = (ServiceRate(0.25, 0.2, 0.3, 2.0, over) for over in (15.0, 120.0))
    assert start(snapshot(10, rate=brief, queues=queues)).likely < start(snapshot(10, rate=long, queues=queues)).likely


def test_system_jobs_are_done_by_any_worker_or_service() -> None:
    own = replace(job("delayed", start_time=NOW + 5000), queue="accoda.schedules")
    answer = explain(snapshot(0, job=own, workers=()))
    assert [gate.name for gate in answer.gates if gate.verdict == "shut"] == ["delayed"]
    assert answer.start is not None and 5 <= answer.start.likely < 6


def test_beyond_ten_thousand_ahead_the_answer_says_more_than_and_at_least() -> None:
    answer = explain(snapshot(10_001))
    assert answer.line == "more than 10,000 jobs are ahead; starts in at least 2 h 6 min"
    assert answer.ahead_is_more and answer.position == 10_002
    assert answer.start is not None and answer.start.text == "in at least 2 h 6 min"
    assert answer.gates[-1].facts["exact"] == 0
    exact = explain(snapshot(10_000))
    assert exact.line.startswith("10,000 jobs are ahead; starts in about 3 h") and not exact.ahead_is_more
