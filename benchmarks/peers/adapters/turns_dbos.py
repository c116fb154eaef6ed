"""DBOS: it looks at the partitions of a queue in a random order, so no customer waits for all jobs of another."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from dbos_app import enqueue, launch
from laned import Order, Starts, await_start, say


def main(order: Order) -> None:
    starts, lengths = Starts(order.others), order.lengths()

    async def run(payload: dict[str, Any]) -> None:
        starts.started(payload["customer"])
        await asyncio.sleep(next(lengths))

    enqueue(order.url, ((customer, {"customer": customer}) for customer in order.customers()))
    await_start()
    launch(order.url, run, partition_concurrency=order.slots, worker_concurrency=order.slots, **order.options["queue"])
    starts.complete.wait()
    say(starts.found())
    threading.Event().wait()


if __name__ == "__main__":
    main(Order.read())
