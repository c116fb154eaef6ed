"""Accoda at mixed work: by default, which is ten slots, or with `concurrency`. Its app is in timed_app.py."""

from __future__ import annotations

import os
import sys

import uvloop
from timed import CHUNK, Jobs, Order, main

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings


def fill(order: Order) -> None:
    async def run() -> None:
        app, payloads = App(order.url), order.payloads()
        for start in range(0, len(payloads), CHUNK):
            await app.enqueue_many("mixed", payloads[start : start + CHUNK])
        await app.close()

    uvloop.run(run())


def work(order: Order, jobs: Jobs) -> None:
    os.environ["TIMED_ORDER"] = sys.argv[2]  # for this process, and for those that it runs handlers in
    from timed_app import app

    async def run() -> None:
        worker = Worker(app, WorkerOptions(queues=("mixed",), settings=Settings.load(environ={})))
        await worker.init()
        await worker.run()

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
