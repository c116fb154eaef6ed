"""Chancy: its worker with the asyncio executor.

It writes down what has run once a second and would have thousands of jobs unwritten when the last has run. So here a
job counts when that is written, not when its handler is called; in the long run the two rates are the same.
"""

from __future__ import annotations

import sys
from typing import Any

import uvloop
from chancy import Chancy, Job, Queue, QueuedJob, Worker
from chancy.plugin import Plugin
from tally import PAYLOAD, Order, Tally, main


async def noop(*, payload: dict[str, Any]) -> None:
    pass


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
            self._tally.ran()


def fill(order: Order) -> None:
    async def run() -> None:
        async with Chancy(order.url) as chancy:
            await chancy.migrate()
            await chancy.declare(Queue("bench", executor=Chancy.Executor.Async, **order.options["queue"]))
            one = Job(func="drain_chancy.noop", queue="bench", kwargs={"payload": PAYLOAD})
            async for _ in chancy.push_many([one] * order.count):
                pass

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    sys.modules["drain_chancy"] = sys.modules["__main__"]  # jobs name their function by its module

    async def run() -> None:
        chancy = Chancy(order.url, plugins=[Count(tally)])
        async with chancy, Worker(chancy, register_signal_handlers=False) as worker:
            await worker.wait_for_shutdown()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
