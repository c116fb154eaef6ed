"""A simulated period: the real API over HTTP, the real app with its worker, virtual time.

Everything is counted at the two ends: at the API, and where runs end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct, field

from accoda import App
from accoda.clock import Clock
from accoda.demand import Answer
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.settings import Settings

from .api import Counts, DealsApi, Terms
from .app import Plan, Post, make_service, run_id
from .asking import ask_when_due
from .automations import Automation, due_of, runs
from .virtual import ApiClock, CountedClient, LoopClock, VirtualLoop, run_virtually

MIDNIGHT = 1_700_006_400_000
"""The start: midnight, UTC."""
HOUR = 3_600_000
SETTINGS = {"max_processors": 4, "heartbeat": 60}
"""Of the workers. A heartbeat each minute is enough here."""


class Wanted(Struct):
    """One request: when it is made and due, what was answered, and when it was delivered (None: it still waits)."""

    tier: str
    at: int
    due: int
    answer: str = ""
    delivered_at: int | None = None


class Prefetched(Struct, frozen=True):
    """Prefetches that were made, were done, and were wanted before they were done; and the tokens they took."""

    created: int = 0
    completed: int = 0
    converted: int = 0
    tokens: int = 0


class Outcome(Struct):
    """The result of a period. `again` counts repeated deliveries; `buried` the jobs that were given up."""

    ended_at: int
    counts: Counts
    offered: int
    requests: list[Wanted]
    again: int = 0
    buried: int = 0
    prefetched: Prefetched = field(default_factory=Prefetched)


class RequestLog:
    """All requests of a period, and their answers and deliveries."""

    def __init__(self, automations: Sequence[Automation], begins: int, ends: int, now: Callable[[], int]) -> None:
        self.wanted = {
            run_id(automation, at): Wanted(automation.tier, at, due_of(automation, at))
            for at, automation in runs(automations, begins, ends)
        }
        self.again = 0
        self._now = now

    def told(self, automation: Automation, at: int, answer: Answer) -> None:
        self.wanted[run_id(automation, at)].answer = answer.what

    def publish(self, post: Post) -> None:
        """Posts are not counted: a run without a deal that fits has none."""

    def ran(self, run: str) -> None:
        wanted = self.wanted[run]
        if wanted.delivered_at is None:
            wanted.delivered_at = self._now()
        else:
            self.again += 1


class Period(Struct, frozen=True):
    """What to simulate: a plan, an API, automations, how long, and from which hour of the day."""

    plan: Plan
    terms: Terms
    automations: Sequence[Automation]
    hours: float
    begins: float = 0.0

    @property
    def begins_at(self) -> int:
        return MIDNIGHT + round(self.begins * HOUR)

    @property
    def ends_at(self) -> int:
        return self.begins_at + round(self.hours * HOUR)


def simulate(period: Period, progress: Callable[[float], None] = lambda share: None) -> Outcome:
    """Run the simulation; `progress` is called now and then with the share that is over."""
    return run_virtually(lambda loop: _simulate(loop, period, progress), period.terms.seed)


async def _simulate(loop: VirtualLoop, period: Period, progress: Callable[[float], None]) -> Outcome:
    begins, ends = period.begins_at, period.ends_at
    clock = LoopClock(loop, begins)
    log = RequestLog(period.automations, begins, ends, clock.now)
    async with DealsApi(period.terms, ApiClock(loop, begins)) as api, App("memory://", clock=clock) as app:
        client = CountedClient(api.url, loop.traffic)
        service = make_service(client, period.automations, log, period.plan, app)
        telling = asyncio.create_task(_tell(clock, ends, progress))
        async with working([app]):
            await ask_when_due(service, period.automations, clock, ends, log.told)
            await sleep_until(clock, ends)
        telling.cancel()
        await client.close()
        stats = (await app.storage.stats()).queues
        counts = (await service.deals.view()).counts
        return Outcome(
            ended_at=clock.now(),
            counts=api.counts,
            offered=api.tokens.offered,
            requests=list(log.wanted.values()),
            again=log.again,
            buried=sum(queue.buried for queue in stats.values()),
            prefetched=Prefetched(
                counts.prefetch_created, counts.prefetch_completed, counts.prefetch_converted, counts.prefetch_tokens
            ),
        )


@asynccontextmanager
async def working(apps: Sequence[App]) -> AsyncIterator[None]:
    """A worker for each app, until the end."""
    settings = Settings.load((), environ={}, overrides=SETTINGS)
    workers = [Worker(app, WorkerOptions(managed=False, settings=settings)) for app in apps]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.shutdown()
        await asyncio.gather(*tasks)


async def sleep_until(clock: Clock, moment: int) -> None:
    await asyncio.sleep(max(0, moment - clock.now()) / 1000)


async def _tell(clock: Clock, ends: int, progress: Callable[[float], None]) -> None:
    begins = clock.now()
    while True:
        progress((clock.now() - begins) / (ends - begins))
        await asyncio.sleep((ends - begins) / 1000 / 48)
