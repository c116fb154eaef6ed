"""pq: it has no worker of its own, so a plain loop of `get`, as in its README. A job is gone when it is handed out."""

from __future__ import annotations

import psycopg2
from pq import PQ
from tally import PAYLOAD, Order, Tally, main


def fill(order: Order) -> None:
    with psycopg2.connect(order.url) as connection:
        PQ(connection).create()
        queue = PQ(connection)["bench"]
        with queue:
            for _ in range(order.count):
                queue.put(PAYLOAD)


def work(order: Order, tally: Tally) -> None:
    for job in PQ(psycopg2.connect(order.url))["bench"]:
        if job is not None:
            tally.ran()


if __name__ == "__main__":
    main(fill, work)
