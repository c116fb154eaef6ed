"""What the manager learns from the store's counters and the workers' heartbeats."""

from typing import Any

import pytest

from accoda.model import QueueStats, Stats
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, QueueRate
from accoda.runtime.manager import Plan
from accoda.runtime.manager.learning import UNKNOWN_SERVICE, FleetView, Known, learn, remember, situation


def beat(id: str = "w1", **fields: Any) -> Heartbeat:
    defaults: dict[str, Any] = {"started_at": 0, "beat_at": 100_000, "queues": ("q",), "max_processors": 4}
    return Heartbeat(id=id, name="default", host="h", pid=1, **{**defaults, **fields})


def look(*workers: Heartbeat, at: int = 0, **counts: Any) -> FleetView:
    return FleetView(Stats({"q": QueueStats(**counts)}), workers or (beat(),), at)


def service(*workers: Heartbeat, known: float | None = None) -> float:
    return learn(look(*workers), None, {"q": Known(known)} if known else {})["q"].service


class TestServiceTime:
    def test_is_a_stated_default_until_a_job_has_run(self) -> None:
        assert service() == UNKNOWN_SERVICE

    def test_is_known_after_a_few_jobs(self) -> None:
        measured = beat(rates={"q": QueueRate(jobs=200, busy=1.0)})
        assert service(measured) == pytest.approx(0.005, rel=1.1)
        assert service(measured, known=0.005) == pytest.approx(0.005)

    def test_is_measured_over_all_workers(self) -> None:
        one, two = (
            beat(id, rates={"q": QueueRate(jobs, busy)}) for id, jobs, busy in [("1", 900, 90), ("2", 100, 110)]
        )
        assert service(one, two, known=0.2) == pytest.approx(0.2)

    def test_stays_known_when_nothing_runs_any_more(self) -> None:
        assert service(beat(), known=7.0) == 7.0

    def test_of_long_jobs_is_known_before_the_first_is_over(self) -> None:
        assert service(beat(processors=(ProcessorState("q", 1, 5, since=40_000),))) > 30

    def test_is_not_made_longer_by_a_batch_that_has_only_begun(self) -> None:
        assert service(beat(processors=(ProcessorState("q", 10, 5, since=99_000, slots=10),)), known=0.5) == 0.5

    def test_takes_no_notice_of_other_queues_and_free_processors(self) -> None:
        states = (ProcessorState("other", 1, 5, since=0), ProcessorState())
        assert service(beat(processors=states, rates={"other": QueueRate(1, 50)}), known=0.5) == 0.5


class TestArrivals:
    def arrivals(self, before: dict[str, int], after: dict[str, int], known: float | None = None) -> float | None:
        first, second = look(at=10_000, **before), look(at=12_000, **after)
        return learn(second, first, {"q": Known(1.0, known)})["q"].arrivals

    def test_are_unknown_until_two_looks_can_be_compared(self) -> None:
        assert learn(look(ready=50), None, {})["q"].arrivals is None

    def test_are_what_there_is_more_of_and_what_ended(self) -> None:
        before = {"ready": 10, "taken": 4, "done": 100, "retried": 5, "buried": 2, "expired": 1}
        after = {"ready": 12, "taken": 3, "done": 110, "retried": 7, "buried": 3, "expired": 2}
        assert self.arrivals(before, after) == (1 + 10 + 2 + 1 + 1) / 2

    def test_count_a_delayed_job_when_it_becomes_ready(self) -> None:
        assert self.arrivals({"delayed": 8}, {"delayed": 2, "ready": 6}) == 3.0

    def test_are_averaged_over_several_looks(self) -> None:
        found = self.arrivals({}, {"done": 200}, known=0.0)
        assert found is not None and 10 < found < 30

    def test_are_never_negative_where_jobs_were_removed(self) -> None:
        assert self.arrivals({"ready": 500}, {"ready": 0}) == 0.0

    def test_fade_to_none(self) -> None:
        known = {"q": Known(1.0, 200.0)}
        last = look(at=0)
        for second in range(2, 200, 2):
            now = look(at=second * 1000)
            known, last = learn(now, last, known), now
        assert known["q"].arrivals == 0.0

    def test_are_left_as_they_were_by_a_clock_that_stood_still_or_went_back(self) -> None:
        assert learn(look(at=5, ready=9), look(at=5), {"q": Known(1.0, 3.0)})["q"].arrivals == 3.0
        assert learn(look(at=4, ready=9), look(at=5), {"q": Known(1.0, 3.0)})["q"].arrivals == 3.0


class TestSituation:
    def test_has_the_queues_that_are_served_and_the_workers_that_are_ready(self) -> None:
        sick = beat("w2", queues=("q", "other"), ready=False)
        seen = look(beat(caps={"q": 2}), sick, ready=3, taken=1)
        found = situation(seen, learn(seen, None, {}))
        assert found.queues.keys() == {"q"}
        assert (found.queues["q"].ready, found.queues["q"].taken) == (3, 1)
        assert [(w.id, w.max_processors, w.caps) for w in found.workers] == [("w1", 4, {"q": 2})]

    def test_a_paused_queue_has_nothing_to_start(self) -> None:
        seen = look(ready=300, taken=2, paused=True)
        view = situation(seen, {"q": Known(1.0, 50.0)}).queues["q"]
        assert (view.ready, view.taken, view.arrivals) == (0, 2, 0.0)


def test_a_new_leader_takes_over_what_the_old_one_knew() -> None:
    assert remember({"q": Plan(9, 1, 0.25, 80.0, 2, 4.5)}) == {"q": Known(0.25, 80.0)}
