"""An app in memory whose clock the tests move, and helpers to look at its schedules and jobs."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from accoda import App
from accoda.clock import ManualClock
from accoda.envelope import JobMetadata, unwrap
from accoda.model import JobInfo
from accoda.payload import decode
from accoda.schedules import Schedule, Scheduler, maker_of
from accoda.storage.protocol import Store

START = round(datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp() * 1000)
"""A Monday at noon."""
MINUTE = 60_000


class Env:
    """An app in memory with a scheduler."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.app = App("memory://", clock=self.clock)
        self.scheduler = Scheduler(maker_of(self.app))

    @property
    def store(self) -> Store:
        return self.app.storage

    async def tick(self, seconds: float = 0.0) -> int:
        """Let time pass, then let a scheduler do what is due."""
        self.clock.advance(seconds)
        return await self.scheduler.run_once(self.store)

    async def jobs(self, queue: str = "reports") -> list[JobInfo]:
        found = [job for state in ("ready", "taken") for job in await self.store.browse(queue, state)]
        return sorted(found, key=lambda job: job.id)

    async def ticks(self, queue: str = "reports") -> list[int | None]:
        """The ticks whose jobs are there, in seconds since the start."""
        moments = [extras_of(job).tick for job in await self.jobs(queue)]
        return [None if moment is None else (moment - START) // 1000 for moment in moments]


def extras_of(job: JobInfo) -> JobMetadata:
    return unwrap(job.data)[0]


def payload_of(job: JobInfo) -> Any:
    return decode(unwrap(job.data)[1])


def every(seconds: float | str, **more: Any) -> Schedule:
    return Schedule(**{"name": "report", "queue": "reports", "every": seconds, **more})


class WithSteps:
    """A store that runs a step before each call of a verb."""

    def __init__(self, env: Env, **steps: list[Callable[[], Awaitable[Any]]]) -> None:
        self._store, self._steps = env.store, steps

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._store, verb)
        if not self._steps.get(verb):
            return call

        async def stepped(*args: Any, **given: Any) -> Any:
            await self._steps[verb].pop(0)()
            return await call(*args, **given)

        return stepped


async def nothing() -> None: ...
