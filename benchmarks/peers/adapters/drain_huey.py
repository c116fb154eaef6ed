"""Huey: a consumer with one worker thread, on Redis, PostgreSQL or SQLite."""

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
        tally.ran()

    return huey.task(name="noop")(noop)


def fill(order: Order) -> None:
    noop = noop_of(open_huey(order), None)
    for _ in range(order.count):
        noop(PAYLOAD)


def work(order: Order, tally: Tally) -> None:
    huey = open_huey(order)
    noop_of(huey, tally)
    huey.create_consumer(workers=order.options["workers"], worker_type="thread", periodic=False).run()


if __name__ == "__main__":
    main(fill, work)
