"""Chancy: its worker with the asyncio executor and its default plugins, of which one recovers the jobs of dead workers.

It writes down what has run once a second and would have thousands of jobs unwritten when the last has run. So in a
drain a job counts when that is written, not when its handler is called; in the long run the two rates are the same.
A delay is taken in the handler, as for all.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import uvloop
from chancy import Chancy, Job, Queue, QueuedJob, Worker
from chancy.plugin import Plugin
from tally import PAYLOAD, Order, Tally, main

TALLY: list[Tally] = []
"""Where handlers report their runs; not used in a drain."""
JOB = Job(func="drain_chancy.noop", queue="bench")


async def noop(*, payload: dict[str, Any]) -> None:
    for tally in TALLY:
        tally.ran(payload)


class Count(Plugin):
    """Counts the jobs whose success is committed."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    @staticmethod
    def get_identifier() -> str:
        return "bench.count"

    async def on_job_updated(self, *, worker: Worker, job: QueuedJob) -> None:
        if job.state is QueuedJob.State.SUCCEEDED:
            self._tally.ran((job.kwargs or {})["payload"])


def fill(order: Order) -> None:
    async def run() -> None:
        async with Chancy(order.url) as chancy:
            await chancy.migrate()
            await chancy.declare(Queue("bench", executor=Chancy.Executor.Async, **order.options["queue"]))
            if order.count:
                async for _ in chancy.push_many([JOB.with_kwargs(payload=PAYLOAD)] * order.count):
                    pass

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    sys.modules["drain_chancy"] = sys.modules["__main__"]  # jobs name their function by its module
    plugins: list[Plugin] = []
    if order.measure == "drain":
        plugins.append(Count(tally))
    else:
        TALLY.append(tally)

    async def run() -> None:
        chancy = Chancy(order.url, plugins=plugins)
        async with chancy, Worker(chancy, register_signal_handlers=False) as worker:
            await worker.wait_for_shutdown()

    uvloop.run(run())


class Producer:
    def __init__(self, order: Order) -> None:
        self._chancy = Chancy(order.url)

    async def open(self) -> None:
        await self._chancy.__aenter__()

    async def one(self, payload: dict[str, Any]) -> None:
        await self._chancy.push(JOB.with_kwargs(payload=payload))

    async def many(self, payloads: list[dict[str, Any]]) -> None:
        async for _ in self._chancy.push_many([JOB.with_kwargs(payload=payload) for payload in payloads]):
            pass

    async def later(self, payload: dict[str, Any], seconds: float) -> None:
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        await self._chancy.push(JOB.with_kwargs(payload=payload).with_scheduled_at(due))

    async def close(self) -> None:
        await self._chancy.__aexit__(None, None, None)


if __name__ == "__main__":
    main(fill, work, Producer)
