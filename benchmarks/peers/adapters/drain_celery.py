"""Celery: one worker of its own command, on Redis."""

from __future__ import annotations

from typing import Any

from celery import Celery
from tally import PAYLOAD, Order, Tally, main


def noop_of(order: Order, tally: Tally | None) -> Any:
    def noop(payload: dict[str, Any]) -> None:
        assert tally is not None
        tally.ran()

    app = Celery("bench", broker=order.url)
    app.conf.update(task_ignore_result=True, worker_enable_remote_control=False, **order.options["conf"])
    return app.task(noop, name="noop")


def fill(order: Order) -> None:
    noop = noop_of(order, None)
    with noop.app.producer_pool.acquire(block=True) as producer:
        for _ in range(order.count):
            noop.apply_async((PAYLOAD,), producer=producer)


def work(order: Order, tally: Tally) -> None:
    quiet = ["--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    noop_of(order, tally).app.worker_main(["worker", *quiet, *order.options["arguments"]])


if __name__ == "__main__":
    main(fill, work)
