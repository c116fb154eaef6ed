"""Storages that sleep on, ask the wrong clock, pause wrongly, or scan to count."""

from __future__ import annotations

from typing import Any

from accoda.clock import SystemClock
from accoda.model import Stats
from accoda.storage.common.wakeups import WakeUps
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import MemoryQueue
from proof.mutants.mutant import BrokenQueue, mutant


class _NoWakeUps(WakeUps):
    def wake(self, queues: object = None) -> None:
        pass


@mutant("no wait is woken", "TestWait::test_wakes_for_an_enqueue", by_machine=False)
class Deaf(MemoryStorage):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._wakeups = _NoWakeUps()


@mutant(
    "leases end by the clock of the machine that asks",
    "TestPromise05TheStoresClockDecides::test_every_moment_is_the_stores",
)
class OwnClock(MemoryStorage):
    def _now(self) -> int:
        super()._now()
        return SystemClock().now()


@mutant(
    "statistics look at every job",
    "TestPromise09StatisticsAreNoScan::test_many_jobs_do_not_make_them_slower",
    by_machine=False,
)
class StatsScan(MemoryStorage):
    async def stats(self) -> Stats:
        assert all(record.id == id for id, record in self._jobs.items())
        return await super().stats()


@mutant("a pause until a moment that has gone pauses", "TestPause::test_until_a_moment_that_has_gone_is_none")
class PauseInThePast(BrokenQueue):
    class Queue(MemoryQueue):
        def pause(self, until: int | None, now: int) -> None:
            self.paused, self.paused_until = True, until

        def is_paused(self, now: int) -> bool:
            return self.paused


@mutant(
    "a pause until a moment that has gone leaves the pause before",
    "TestPause::test_until_a_moment_that_has_gone_resumes",
)
class PauseInThePastIsIgnored(BrokenQueue):
    class Queue(MemoryQueue):
        def pause(self, until: int | None, now: int) -> None:
            if until is None or until > now:
                super().pause(until, now)

        def is_paused(self, now: int) -> bool:
            if self.paused_until is not None and self.paused_until <= now:
                self.paused, self.paused_until = False, None
            return self.paused
