"""repid: one worker on a Redis stream."""

from __future__ import annotations

from typing import Any

import uvloop
from repid import RedisServer, Repid, Router
from tally import PAYLOAD, Order, Tally, main


def open_app(order: Order) -> Repid:
    app = Repid(title="bench", version="1")
    server = RedisServer(order.url, **order.options.get("server", {}))
    app.servers.register_server("default", server, is_default=True)
    return app


class Producer:
    """Neither `many` nor `later`: its Redis server has no call for either."""

    def __init__(self, order: Order) -> None:
        self.app = open_app(order)

    async def open(self) -> None:
        await self.app.servers.default.connect()

    async def one(self, payload: dict[str, Any]) -> None:
        await self.app.send_message_json(channel="default", payload={"payload": payload}, headers={"topic": "noop"})

    async def close(self) -> None:
        await self.app.servers.default.disconnect()


def fill(order: Order) -> None:
    async def run() -> None:
        producer = Producer(order)
        await producer.open()
        for _ in range(order.count):
            await producer.one(PAYLOAD)
        await producer.close()

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    router = Router()

    @router.actor(**order.options.get("actor", {}))
    async def noop(payload: dict[str, Any]) -> None:
        tally.ran(payload)

    async def run() -> None:
        app = open_app(order)
        app.include_router(router)
        async with app.servers.default.connection():
            await app.run_worker(tasks_limit=order.options["tasks_limit"])

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work, Producer)
