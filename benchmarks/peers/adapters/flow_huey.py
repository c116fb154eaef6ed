"""Huey's chords, on Redis or SQLite. Members keep results, since a chord collects them."""

from __future__ import annotations

from typing import Any

from huey import Huey, RedisHuey, SqliteHuey
from huey.api import chord
from joining import Notes, Order, main


def open_huey(order: Order) -> Huey:
    if order.url.startswith("redis:"):
        return RedisHuey("flows", url=order.url)
    return SqliteHuey("flows", filename=order.url.removeprefix("sqlite:///"))


class Tasks:
    def __init__(self, order: Order, notes: Notes | None) -> None:
        def member(flow: int, index: int) -> None:
            assert notes is not None
            notes.member(flow, index)

        def join(results: list[None], flow: int) -> None:
            assert notes is not None
            notes.join(flow)

        self.huey = open_huey(order)
        self.member: Any = self.huey.task(name="member")(member)
        self.join: Any = self.huey.task(name="join")(join)


class Producer:
    def __init__(self, order: Order) -> None:
        self.tasks = Tasks(order, None)

    def start(self, flow: int, members: int) -> None:
        parts = [self.tasks.member.s(flow, index) for index in range(members)]
        self.tasks.huey.enqueue(chord(parts, self.tasks.join.s(flow=flow)))


def work(order: Order, notes: Notes) -> None:
    options: dict[str, Any] = {"worker_type": "thread", "periodic": False, "initial_delay": 0.01, "max_delay": 0.01}
    Tasks(order, notes).huey.create_consumer(**{**options, **order.options["consumer"]}).run()


if __name__ == "__main__":
    main(Producer, work)
