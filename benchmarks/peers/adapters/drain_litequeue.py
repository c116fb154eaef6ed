"""litequeue: it has no worker of its own, so a plain loop of `pop` and `done`, as in its README.

What a dead process had in hand stays locked until `retry` is called; the loop does so now and then, by
`list_locked`. An empty queue is polled.
"""

from __future__ import annotations

import json
import time
from typing import Any

from litequeue import LiteQueue
from tally import PAYLOAD, Order, Tally, main

POLL = 0.01
LOOK_AFTER = 10.0


def open_queue(order: Order) -> LiteQueue:
    queue = LiteQueue(order.path, timeout=30)
    if order.options.get("durable"):
        queue.conn.execute("PRAGMA synchronous = FULL")
    return queue


def fill(order: Order) -> None:
    queue = open_queue(order)
    with queue.transaction():
        for _ in range(order.count):
            queue.put(json.dumps(PAYLOAD))


def work(order: Order, tally: Tally) -> None:
    queue = open_queue(order)
    look_at = 0.0
    while True:
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + LOOK_AFTER
            for stale in list(queue.list_locked(order.options.get("stale", 30))):
                queue.retry(stale.message_id)
        message = queue.pop()
        if message is None:
            time.sleep(POLL)
        else:
            tally.ran(json.loads(message.data))
            queue.done(message.message_id)


class Producer:
    def __init__(self, order: Order) -> None:
        self._queue = open_queue(order)

    def one(self, payload: dict[str, Any]) -> None:
        self._queue.put(json.dumps(payload))

    def close(self) -> None:
        self._queue.close()


if __name__ == "__main__":
    main(fill, work, Producer)
