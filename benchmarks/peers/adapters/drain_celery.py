"""Celery: one worker of its own command, on Redis."""

from __future__ import annotations

from typing import Any

from celery import Celery, group
from tally import PAYLOAD, Order, Tally, main


def noop_of(order: Order, tally: Tally | None) -> Any:
    def noop(payload: dict[str, Any]) -> None:
        assert tally is not None
        tally.ran(payload)

    app = Celery("bench", broker=order.url)
    app.conf.update(task_ignore_result=True, worker_enable_remote_control=False, **order.options["conf"])
    return app.task(noop, name="noop")


class Producer:
    def __init__(self, order: Order) -> None:
        self.noop = noop_of(order, None)

    def one(self, payload: dict[str, Any]) -> None:
        self.noop.delay(payload)

    def many(self, payloads: list[dict[str, Any]]) -> None:
        group(self.noop.s(payload) for payload in payloads).apply_async()

    def later(self, payload: dict[str, Any], seconds: float) -> None:
        self.noop.apply_async((payload,), countdown=seconds)

    def close(self) -> None:
        self.noop.app.close()


def fill(order: Order) -> None:
    noop = noop_of(order, None)
    with noop.app.producer_pool.acquire(block=True) as producer:
        for _ in range(order.count):
            noop.apply_async((PAYLOAD,), producer=producer)


def work(order: Order, tally: Tally) -> None:
    quiet = ["--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    noop_of(order, tally).app.worker_main(["worker", *quiet, *order.options["arguments"]])


if __name__ == "__main__":
    main(fill, work, Producer)
