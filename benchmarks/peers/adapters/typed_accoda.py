"""Accoda's drain of no-op jobs of `types` types in one queue, in turns; with 0 they have none."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import uvloop
from tally import PAYLOAD, Order, Tally, main

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings

CHUNK = 50  # jobs of one type, after which those of the next come
CALLS = 20  # at the same time


def names(order: Order) -> list[str | None]:
    """The types of the jobs; None: jobs without one."""
    return [f"kind.{number}" for number in range(order.options["types"])] or [None]


def said(name: str | None) -> dict[str, Any]:
    return {} if name is None else {"type": name}


def fill(order: Order) -> None:
    async def run() -> None:
        app, turn = App(order.url), itertools.cycle(names(order))
        sizes = [min(CHUNK, order.count - start) for start in range(0, order.count, CHUNK)]
        for start in range(0, len(sizes), CALLS):
            calls = [
                app.enqueue_many("noop", [PAYLOAD] * size, **said(next(turn))) for size in sizes[start : start + CALLS]
            ]
            await asyncio.gather(*calls)
        await app.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        app, batch = App(order.url), order.options["batch"]
        for name in names(order):

            @app.handler("noop", batch=batch, **said(name))
            async def noop(payload: dict[str, Any]) -> None:
                tally.ran(payload)

        settings = Settings.load(environ={}, overrides={"max_processors": order.options["processors"]})
        worker = Worker(app, WorkerOptions(queues=("noop",), settings=settings))
        await worker.init()
        await worker.run()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
