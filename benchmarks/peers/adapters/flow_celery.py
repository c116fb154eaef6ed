"""Celery's chords, on a Redis that is both its broker and its result backend."""

from __future__ import annotations

from typing import Any

from celery import Celery, chord
from joining import Notes, Order, main


class Tasks:
    """The app and its two tasks. A member's result is kept, since a chord counts results; the join's is not."""

    def __init__(self, order: Order, notes: Notes | None) -> None:
        def member(flow: int, index: int) -> None:
            assert notes is not None
            notes.member(flow, index)

        def join(results: list[None], flow: int) -> None:
            assert notes is not None
            notes.join(flow)

        self.app = Celery("flows", broker=order.url, backend=order.url)
        self.app.conf.update(
            worker_enable_remote_control=False,
            broker_connection_retry_on_startup=True,
            **order.options.get("conf", {}),
        )
        self.member: Any = self.app.task(member, name="member")
        self.join: Any = self.app.task(join, name="join", ignore_result=True)


class Producer:
    def __init__(self, order: Order) -> None:
        self.tasks = Tasks(order, None)

    def start(self, flow: int, members: int) -> None:
        header = [self.tasks.member.s(flow, index) for index in range(members)]
        chord(header)(self.tasks.join.s(flow))


def work(order: Order, notes: Notes) -> None:
    quiet = ["--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    Tasks(order, notes).app.worker_main(["worker", *quiet, *order.options["arguments"]])


if __name__ == "__main__":
    main(Producer, work)
