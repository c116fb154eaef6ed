"""Spoils records of a SQLite file, over a connection of its own."""

from __future__ import annotations

from random import Random
from typing import Any

import apsw

from accoda.storage.sqlite.connection import wait_for_lock
from accoda.storage.sqlite.storage import SqliteStorage
from accoda.testing.damage import prepare

_NUMBERS = ("attempts", "waiters", "cost", "created_at", "start_time", "prev_start_time", "fresh_at", "crashes",
            "taken_at", "ended_at")  # fmt: skip
_ABSURD = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62, 1 << 54, -(1 << 40))
_REALS = (float("inf"), float("-inf"), 1.7e308, -1.7e308, float("nan"))
_WRONG = ("text", b"\xff\x00", None, "", 0.5)
_NO_TEXT = (b"\xff\xfe", b"\xc3", b"abc\x80", b"\xed\xa0\x80")


async def damage(store: SqliteStorage, rng: Random, count: int, queue: str) -> int:
    ids = await prepare(store, rng, count, queue)
    connection = apsw.Connection(str(store._writer._path))
    connection.set_busy_handler(wait_for_lock())
    try:
        connection.execute("BEGIN IMMEDIATE")
        spoiled = sum(_spoil(connection, rng, id) for id in ids)
        _spoil_documents(connection, rng, max(1, count // 20))
        connection.execute("UPDATE counters SET value = 0 WHERE name = 'last_id'")
        connection.execute("COMMIT")
    finally:
        connection.close()
    return spoiled


def _spoil(connection: apsw.Connection, rng: Random, id: int) -> bool:
    statement, value = _change(rng)
    try:
        connection.execute(f"UPDATE OR ABORT jobs SET {statement} WHERE id = ?2", (value, id))
    except (apsw.ConstraintError, apsw.MismatchError):
        return False
    if rng.random() < 0.1:
        connection.execute("INSERT OR IGNORE INTO waiters VALUES (?, ?, x'ff')", (id, rng.choice((0, 2, 3, -1))))
    return True


def _change(rng: Random) -> tuple[str, Any]:
    """What to set, with ?1 for a value."""
    kind = rng.randrange(9)
    if kind <= 3:
        return f"{rng.choice(_NUMBERS)} = ?1", rng.choice(_ABSURD)
    if kind == 4:
        return f"{rng.choice(('rank', 'sort', 'keep_for'))} = ?1", rng.choice(_REALS)
    if kind == 5:
        return f"{rng.choice(('key', 'worker', 'reason'))} = CAST(?1 AS TEXT)", rng.choice(_NO_TEXT) + rng.randbytes(3)
    if kind == 6:
        return "state = ?1", rng.choice((-1, 5, 99, 1 << 40, -(1 << 63), rng.randrange(5)))
    if kind == 7:
        column = rng.choice((*_NUMBERS, "data", "queue", "id", "state", "sort"))
        return f"{column} = ?1", rng.choice(_WRONG)
    return rng.choice(
        (("queue = ?1", rng.choice((7_777, -3, 1 << 60))), ("id = -id - ?1", 1), ("id = id + ?1", 1 << 62))
    )


def _spoil_documents(connection: apsw.Connection, rng: Random, count: int) -> None:
    for n in range(count):
        name = f"damaged/{n}".encode() + (b"\xff" if rng.random() < 0.3 else b"")
        values = (name, rng.choice((1, *_ABSURD)), rng.choice((None, *_ABSURD)))
        connection.execute(
            "INSERT INTO documents VALUES (CAST(?1 AS TEXT), x'01', ?2, ?3) ON CONFLICT DO NOTHING", values
        )
