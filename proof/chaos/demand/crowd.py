"""A crowd wants the same thing at the same moment, from several processes: one call, and each is served once."""

from __future__ import annotations

import time
from asyncio import gather
from collections import Counter

import msgspec

from proof.chaos.demand.stage import Stage

WAITERS = 1000
PROCESSES = 4


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. `jobs` are the delivery jobs that ran: one for each waiter, if all is well."""

    answers: dict[str, int]
    calls: int
    waiters: int
    served: int
    deliveries: int
    jobs: int
    asked_in: float
    seconds: float

    @property
    def ok(self) -> bool:
        return self.calls == 1 and self.served == self.deliveries == self.jobs == self.waiters


async def run(stage: Stage, *, worker_first: bool, waiters: int = WAITERS, processes: int = PROCESSES) -> Crowd:
    """The worker is there before the people come, or starts when all of them wait."""
    if worker_first:
        await stage.worker()
    each = waiters // processes
    people = await gather(*(stage.people(one, first=one * each, count=each) for one in range(processes)))
    began = time.monotonic()
    await stage.send(people)
    asked_in = time.monotonic() - began
    if not worker_first:
        await stage.worker()
    await stage.until_served()
    return what_became(stage, each * processes, asked_in, time.monotonic() - began)


def what_became(stage: Stage, waiters: int, asked_in: float, seconds: float) -> Crowd:
    deliveries = stage.lines("deliver")
    return Crowd(
        answers=dict(Counter(line.what for line in stage.lines("created", "attached", "cached", "stale"))),
        calls=len(stage.lines("fetch")),
        waiters=waiters,
        served=len({line.subject for line in deliveries}),
        deliveries=len(deliveries),
        jobs=len({line.job for line in deliveries}),
        asked_in=asked_in,
        seconds=seconds,
    )
