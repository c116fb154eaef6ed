"""Huey: a consumer with worker threads, on Redis, PostgreSQL or SQLite."""

from __future__ import annotations

from typing import Any

from huey import CySqliteHuey, Huey, PostgresHuey, RedisHuey, SqliteHuey
from tally import PAYLOAD, Order, Tally, main


def open_huey(order: Order) -> Huey:
    options: dict[str, Any] = {"results": False, **order.options.get("huey", {})}
    if order.url.startswith("redis:"):
        return RedisHuey("bench", url=order.url, **options)
    if order.url.startswith("postgresql:"):
        return PostgresHuey("bench", dsn=order.url, **options)
    kind = CySqliteHuey if order.options.get("driver") == "cysqlite" else SqliteHuey
    return kind("bench", filename=order.path, **options)


def noop_of(huey: Huey, tally: Tally | None) -> Any:
    def noop(payload: dict[str, Any]) -> None:
        assert tally is not None
        tally.ran(payload)

    return huey.task(name="noop")(noop)


class Producer:
    """No `many`: its `map` enqueues one by one."""

    def __init__(self, order: Order) -> None:
        self.huey = open_huey(order)
        self.noop = noop_of(self.huey, None)

    def one(self, payload: dict[str, Any]) -> None:
        self.noop(payload)

    def later(self, payload: dict[str, Any], seconds: float) -> None:
        self.noop.schedule((payload,), delay=seconds)

    def close(self) -> None:
        self.huey.storage.close()


def fill(order: Order) -> None:
    noop = noop_of(open_huey(order), None)
    for _ in range(order.count):
        noop(PAYLOAD)


def work(order: Order, tally: Tally) -> None:
    huey = open_huey(order)
    noop_of(huey, tally)
    # Its scheduler looks once a second, which is the shortest that it allows.
    options: dict[str, Any] = {"worker_type": "thread", "periodic": False, **order.options.get("consumer", {})}
    huey.create_consumer(workers=order.options["workers"], **options).run()


if __name__ == "__main__":
    main(fill, work, Producer)
