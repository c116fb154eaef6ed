"""The handlers that workers run, and what goes wrong in them.

A job that comes out well has its run noted as finished: no outcome may say `Done` of it before. At the end of a run the
cluster is calm, and every handler just succeeds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import msgpack

from accoda.errors import BuryJob, RetryLater
from accoda.retry import Exponential
from accoda.runtime.batch import Batch, Running
from proof.simulation.flows import FLOW_QUEUES, install_steps

if TYPE_CHECKING:
    from proof.simulation.process import Process

HANDLED = ("mail", "bulk", "slow", "unique", "chain", "deals.deliver", *FLOW_QUEUES)
"""The queues that workers serve."""
RAW = ("deals", "costly")
"""The queues that bare clients of the store serve: with waiters, and within a cost."""
POISON = -1
"""The payload of a job that kills the process that runs it."""
MAX_CRASHES = 5
"""After so many lost leases, such a job is buried."""

_RETRY = Exponential(first=0.05, longest=1.0)
PAYLOADS = [msgpack.encode(number) for number in range(1024)]
"""Encoded once: producers are not what is tested here."""


class Troubled(Exception):
    """What a simulated handler raises."""


def install(process: Process) -> None:
    """Give a process the handlers of all queues."""
    app, troubles = process.app, Troubles(process)
    begun = troubles.begun
    finished, trouble_at = process.cluster.finished, troubles.draw
    install_steps(process, troubles)

    @app.handler("mail", batch=25, lease=3.0, retry=_RETRY, max_attempts=12, max_crashes=MAX_CRASHES)
    async def mail(number: int) -> None:
        job = begun(app.current)
        if trouble_at() or number == POISON:
            await troubles.befall(job, number, longest=6.0)
        finished.add((job.job.id, job.job.attempts))

    @app.handler("chain", batch=10, lease=2.0, retry=_RETRY, max_crashes=MAX_CRASHES)
    async def chain(number: int) -> None:
        job = begun(app.current)
        if trouble_at() or number == POISON:
            await troubles.befall(job, number, longest=1.0)
        job.enqueue("mail", number)
        finished.add((job.job.id, job.job.attempts))

    @app.handler("slow", batch=5, lease=1.5, timeout=8.0, retry=_RETRY)
    async def slow(number: int) -> None:
        job = begun(app.current)
        if not process.cluster.calm:
            await asyncio.sleep(troubles.random() * 4.0)
        if trouble_at():
            await troubles.befall(job, number, longest=12.0)
        finished.add((job.job.id, job.job.attempts))

    @app.handler("unique", batch=10, lease=2.0, keep_for=20.0, retry=_RETRY)
    async def unique(number: int) -> int:
        job = begun(app.current)
        if trouble_at() or number == POISON:
            await troubles.befall(job, number, longest=3.0)
        finished.add((job.job.id, job.job.attempts))
        return number

    @app.handler("deals.deliver", batch=50, lease=5.0, retry=_RETRY)
    async def deliver(batch: Batch[int]) -> None:
        for job in batch:
            begun(job)
        finished.update((job.job.id, job.job.attempts) for job in batch)

    @app.handler("bulk", batch=50, lease=3.0, retry=_RETRY, max_attempts=12, max_crashes=MAX_CRASHES)
    async def bulk(batch: Batch[int]) -> None:
        await troubles.befall_batch(batch)


class Troubles:
    """What may happen in a handler, drawn from the seed."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._city = process.cluster
        self._share = process.cluster.mix.trouble
        self.random = process.cluster.handler_draws.random

    def draw(self) -> bool:
        """Whether this run meets trouble."""
        return self.random() < self._share and not self._city.calm

    def begun(self, job: Running[int]) -> Running[int]:
        """Record that the job runs now."""
        self._process.recorder.note("start", id=job.job.id, attempts=job.job.attempts)
        return job

    async def befall(self, job: Running[int], number: int, longest: float) -> None:
        """Sleep, fail, ask for another time, give up, or enqueue what follows."""
        if number == POISON:
            self._city.poisoned.append((job.id, job.attempts))
            self._process.kill()
            await self._process.freeze()
        kind = int(self.random() * 7)
        if kind == 0:
            await asyncio.sleep(self.random() * 0.2)
        elif kind == 1:
            await asyncio.sleep(self.random() * longest)  # often longer than the lease
        elif kind == 2:
            raise Troubled("it did not work")
        elif kind == 3:
            raise RetryLater("later", delay=self.random() * 2.0)
        elif kind == 4 and self.random() < 0.2:
            raise BuryJob("hopeless")
        elif kind == 5:
            job.enqueue("mail", number, delay=self.random())
        elif kind == 6:
            await asyncio.sleep(0)

    async def befall_batch(self, batch: Batch[int]) -> None:
        finished, draw = self._city.finished, self.random
        for job in batch:
            self.begun(job)
            if job.payload == POISON:
                await self.befall(job, POISON, 0.0)
            if not self.draw():
                continue
            kind = int(draw() * 4)
            if kind == 0:
                batch.retry(job, delay=draw())
            elif kind == 1 and draw() < 0.3:
                batch.bury(job, "hopeless")
            elif kind == 2:
                batch.enqueue("mail", job.payload)
            elif kind == 3 and draw() < 0.3:
                await asyncio.sleep(draw() * 5.0)
        if self.draw() and draw() < 0.2:
            raise Troubled("the whole batch did not work")
        finished.update((job.job.id, job.job.attempts) for job in batch if job.job.id not in batch.results)
