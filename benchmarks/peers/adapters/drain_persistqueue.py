"""persist-queue: it has no worker of its own, so a plain loop, as in its README. Meant for one consuming process.

`SQLiteAckQueue`: `get` and `ack`; what was not acknowledged comes back when the queue is opened again.
`SQLiteQueue` with auto_commit off, which its README gives for speed: `get`, and a `task_done` for many jobs, which
deletes them; those that were not deleted come back when the queue is opened again.
Its `get` wakes at once when the same process puts. Here another one does, so it is given a short timeout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from persistqueue import Empty, SQLiteAckQueue, SQLiteQueue
from tally import PAYLOAD, Order, Tally, main

POLL = 0.01
TOGETHER = 100
"""Jobs for each `task_done`, and acknowledged ones for each `clear_acked_data`."""


def open_queue(order: Order, **options: Any) -> Any:
    place = Path(order.path)
    kind = SQLiteAckQueue if order.options["ack"] else SQLiteQueue
    return kind(str(place.parent), db_file_name=place.name, multithreading=True, timeout=30, **options)


def fill(order: Order) -> None:
    """Each of its puts is a commit. Filling is not measured, so these are not synced; they would take minutes."""
    queue = open_queue(order)
    queue._putter.execute("PRAGMA synchronous = OFF")
    for _ in range(order.count):
        queue.put(PAYLOAD)
    queue.close()


def work(order: Order, tally: Tally) -> None:
    if order.options["ack"]:
        work_with_ack(open_queue(order), tally)
    else:
        work_in_batches(open_queue(order, auto_commit=False), tally)


def work_with_ack(queue: Any, tally: Tally) -> None:
    acknowledged = 0
    while True:
        try:
            item = queue.get(timeout=POLL, raw=True)
        except Empty:
            continue
        tally.ran(item["data"])
        queue.ack(id=item["pqid"])
        acknowledged += 1
        if acknowledged % TOGETHER == 0:  # `get` reads over all acknowledged jobs that are still there
            queue.clear_acked_data(max_delete=TOGETHER, keep_latest=0)


def work_in_batches(queue: Any, tally: Tally) -> None:
    taken = 0
    while True:
        try:
            payload = queue.get(timeout=POLL)
        except Empty:
            if taken:
                queue.task_done()
                taken = 0
            continue
        tally.ran(payload)
        taken += 1
        if taken == TOGETHER:
            queue.task_done()
            taken = 0


class Producer:
    def __init__(self, order: Order) -> None:
        self._queue = open_queue(order)

    def one(self, payload: dict[str, Any]) -> None:
        self._queue.put(payload)

    def close(self) -> None:
        self._queue.close()


if __name__ == "__main__":
    main(fill, work, Producer)
