"""How fast a worker is at each queue, for the manager, and what it did in sum, for the history."""

from __future__ import annotations

from accoda.runtime.events import BatchReport
from accoda.runtime.heartbeat import QueueRate, QueueSums


class Rates:
    """A monitor that measures, for each queue, jobs and the seconds they kept processors busy; old ones count less."""

    DECAY = 0.98

    def __init__(self) -> None:
        self._rates: dict[str, list[float]] = {}
        self._sums: dict[str, list[float]] = {}

    def batch_started(self, queue: str, number: int | None, jobs: int) -> None:
        pass

    def batch_ended(self, report: BatchReport) -> None:
        rate = self._rates.setdefault(report.queue, [0.0, 0.0])
        rate[0] = rate[0] * self.DECAY + report.jobs
        rate[1] = rate[1] * self.DECAY + report.stats.duration
        sums = self._sums.setdefault(report.queue, [0, 0.0, 0.0])
        sums[0] += report.jobs
        # Jobs that ran at the same time ran for as long as their batch, each of them.
        sums[1] += report.stats.duration * (report.jobs if report.together else 1)
        sums[2] += report.waited * report.jobs

    def processors_changed(self, running: int) -> None:
        pass

    def snapshot(self) -> dict[str, QueueRate]:
        return {queue: QueueRate(jobs, busy) for queue, (jobs, busy) in self._rates.items()}

    def sums(self) -> dict[str, QueueSums]:
        return {queue: QueueSums(int(jobs), ran, waited) for queue, (jobs, ran, waited) in self._sums.items()}
