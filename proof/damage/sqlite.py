"""Damages records of a SQLite file, over a connection of its own.

The constraints of the tables refuse nearly everything. What is left is what a bad disk can do to a text, and jobs of a
queue that does not exist.
"""

from __future__ import annotations

from random import Random
from typing import Any

import apsw

from accoda.storage.sqlite.connection import wait_for_lock
from accoda.storage.sqlite.storage import SqliteStorage
from proof.damage import prepare

NUMBERS = ("attempts", "tries", "crashes", "waiters", "cost", "created_at", "start_time", "prev_start_time", "taken_at",
           "ended_at")  # fmt: skip
ABSURD_NUMBERS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62, -(1 << 40))
ABSURD_REALS = (float("inf"), float("-inf"), float("nan"))
_WRONG_TYPES = ("text", 0.5)
_TEXTS = ("key", "lane", "worker", "reason", "reports_to")
_NO_TEXT = (b"\xff\xfe", b"\xc3", b"abc\x80", b"\xed\xa0\x80")


async def damage(store: SqliteStorage, rng: Random, count: int, queue: str) -> int:
    ids = await prepare(store, rng, count, queue)
    connection = apsw.Connection(str(store._writer._path))
    connection.set_busy_handler(wait_for_lock())
    try:
        connection.execute("BEGIN IMMEDIATE")
        damaged = sum(set_column(connection, *_change(rng), id) for id in ids)
        for n in range(max(1, count // 20)):
            name = f"damaged/{n}".encode() + rng.choice((b"", *_NO_TEXT))
            connection.execute("INSERT OR IGNORE INTO documents VALUES (CAST(? AS TEXT), x'01', 1, NULL)", (name,))
        connection.execute("UPDATE counters SET value = 0; UPDATE queues SET ready = 0, taken = 0, dead = 7")
        connection.execute("COMMIT")
    finally:
        connection.close()
    return damaged


def set_column(connection: apsw.Connection, column: str, value: Any, id: int) -> bool:
    """Whether the engine lets this happen."""
    text = f"UPDATE jobs SET {column} = {'CAST(?1 AS TEXT)' if isinstance(value, bytes) else '?1'} WHERE id = ?2"
    try:
        connection.execute(text, (value, id))
    except (apsw.ConstraintError, apsw.MismatchError):
        return False
    return True


def _change(rng: Random) -> tuple[str, Any]:
    """A column, and what it is set to."""
    return rng.choice(
        (
            (rng.choice(NUMBERS), rng.choice(ABSURD_NUMBERS)),
            (rng.choice(("rank", "sort", "keep_for")), rng.choice(ABSURD_REALS)),
            (rng.choice((*NUMBERS, "state", "sort", "queue", "data")), rng.choice(_WRONG_TYPES)),
            ("state", rng.choice((-1, 6, 1 << 40))),
            ("queue", 7_777),
            (rng.choice(_TEXTS), rng.choice(_NO_TEXT) + rng.randbytes(3)),
            (rng.choice(_TEXTS), rng.choice(_NO_TEXT)),
        )
    )
