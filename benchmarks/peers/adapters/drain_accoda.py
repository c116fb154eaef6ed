"""Accoda: its `Worker`, on any storage. The producer awaits `App`, or calls its sync face (`face: sync`)."""

from __future__ import annotations

import json
import sys
from typing import Any

import uvloop
from tally import PAYLOAD, Order, Tally, main

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings


def open_app(order: Order) -> App:
    return App(order.url + order.options.get("query", ""))


class Producer:
    def __init__(self, order: Order) -> None:
        self.app = open_app(order)

    async def open(self) -> None:
        pass  # the first call connects

    async def one(self, payload: dict[str, Any]) -> None:
        await self.app.enqueue("noop", payload)

    async def many(self, payloads: list[dict[str, Any]]) -> None:
        await self.app.enqueue_many("noop", payloads)

    async def later(self, payload: dict[str, Any], seconds: float) -> None:
        await self.app.enqueue("noop", payload, delay=seconds)

    async def close(self) -> None:
        await self.app.close()


class SyncProducer:
    def __init__(self, order: Order) -> None:
        self.app = open_app(order)

    def one(self, payload: dict[str, Any]) -> None:
        self.app.sync.enqueue("noop", payload)

    def many(self, payloads: list[dict[str, Any]]) -> None:
        self.app.sync.enqueue_many("noop", payloads)

    def later(self, payload: dict[str, Any], seconds: float) -> None:
        self.app.sync.enqueue("noop", payload, delay=seconds)

    def close(self) -> None:
        self.app.sync.close()


def fill(order: Order) -> None:
    async def run() -> None:
        app = open_app(order)
        await app.storage.stats()  # makes the store, also where no job follows
        for start in range(0, order.count, 1000):
            await app.enqueue_many("noop", [PAYLOAD] * min(1000, order.count - start))
        await app.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    async def run() -> None:
        app = open_app(order)

        @app.handler("noop", batch=order.options["batch"])
        async def noop(payload: dict[str, Any]) -> None:
            tally.ran(payload)

        # The worker of `accoda worker -c N`.
        settings = Settings.load(environ={}, overrides={"max_processors": order.options["processors"]})
        worker = Worker(app, WorkerOptions(queues=("noop",), settings=settings))
        await worker.init()
        await worker.run()

    uvloop.run(run())


if __name__ == "__main__":
    sync = json.loads(sys.argv[2]).get("options", {}).get("face") == "sync"
    main(fill, work, SyncProducer if sync else Producer)
