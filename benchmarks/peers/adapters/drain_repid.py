"""repid: one worker on a Redis stream."""

from __future__ import annotations

import json
from typing import Any

import uvloop
from repid import RedisServer, Repid, Router
from tally import PAYLOAD, Order, Tally, main


def open_app(order: Order) -> Repid:
    app = Repid(title="bench", version="1")
    server = RedisServer(order.url, **order.options.get("server", {}))
    app.servers.register_server("default", server, is_default=True)
    return app


def fill(order: Order) -> None:
    async def run() -> None:
        app = open_app(order)
        data = json.dumps({"payload": PAYLOAD}).encode()
        async with app.servers.default.connection():
            for _ in range(order.count):
                await app.send_message(
                    channel="default", payload=data, headers={"topic": "noop"}, content_type="application/json"
                )

    uvloop.run(run())


def work(order: Order, tally: Tally) -> None:
    router = Router()

    @router.actor
    async def noop(payload: dict[str, Any]) -> None:
        tally.ran()

    async def run() -> None:
        app = open_app(order)
        app.include_router(router)
        async with app.servers.default.connection():
            await app.run_worker(tasks_limit=order.options["tasks_limit"])

    uvloop.run(run())


if __name__ == "__main__":
    main(fill, work)
