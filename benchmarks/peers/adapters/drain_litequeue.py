"""litequeue: it has no worker of its own, so a plain loop of `pop` and `done`, as in its README."""

from __future__ import annotations

import json

from litequeue import LiteQueue
from tally import PAYLOAD, Order, Tally, main


def fill(order: Order) -> None:
    queue = LiteQueue(order.path)
    with queue.transaction():
        for _ in range(order.count):
            queue.put(json.dumps(PAYLOAD))


def work(order: Order, tally: Tally) -> None:
    queue = LiteQueue(order.path)
    if order.options.get("durable"):
        queue.conn.execute("PRAGMA synchronous = FULL")
    while (message := queue.pop()) is not None:
        json.loads(message.data)
        tally.ran()
        queue.done(message.message_id)


if __name__ == "__main__":
    main(fill, work)
