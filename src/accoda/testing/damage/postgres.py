"""Spoils records of a PostgreSQL store, over a connection of its own."""

from __future__ import annotations

from random import Random
from typing import Any

from accoda.storage.postgres.connector import Connection, close
from accoda.storage.postgres.storage import PostgresStorage
from accoda.testing.damage import prepare

_BIG = ("cost", "created_at", "start_time", "prev_start_time", "taken_at", "ended_at")
_SMALL = ("attempts", "waiters", "fresh_at", "crashes")
_REALS = ("rank", "sort", "keep_for")
_NAMES = ("bad name", "", "-", "ü", "x" * 200, "elsewhere", "'; DROP TABLE jobs")


async def damage(store: PostgresStorage, rng: Random, count: int, queue: str) -> int:
    ids = await prepare(store, rng, count, queue)
    connection = await store._client.connect()
    try:
        async with connection.transaction():
            await connection.execute(f'SET LOCAL search_path TO "{store._client.schema}"')
            changes = [(*_change(rng), id) for id in ids]
            for column in sorted({column for column, _, _ in changes}):
                await _spoil(connection, column, [(value, id) for name, value, id in changes if name == column])
            await connection.executemany(
                "INSERT INTO waiters VALUES ($1, $2, 'w') ON CONFLICT DO NOTHING",
                [(id, rng.choice((0, 2, 3, -1))) for id in ids if rng.random() < 0.1],
            )
            await connection.executemany(
                "INSERT INTO documents VALUES ($1, 'x', $2, $3) ON CONFLICT DO NOTHING",
                [(f"damaged/{n}", rng.choice((1, *_absurd(63))), rng.choice((None, *_absurd(63))))
                 for n in range(max(1, count // 20))],
            )  # fmt: skip
    finally:
        await close(connection)
    return len(ids)  # NULLs and wrong types are not even tried: the columns refuse them


async def _spoil(connection: Connection, column: str, changes: list[tuple[Any, int]]) -> None:
    await connection.executemany(f"UPDATE jobs SET {column} = $1 WHERE id = $2", changes)


def _change(rng: Random) -> tuple[str, Any]:
    """A column, and what it is set to."""
    kind = rng.randrange(8)
    if kind <= 1:
        return rng.choice(_BIG), rng.choice(_absurd(63))
    if kind <= 3:
        return rng.choice(_SMALL), rng.choice(_absurd(31))
    if kind == 4:
        return rng.choice(_REALS), rng.choice((float("nan"), float("inf"), float("-inf"), 1.7e308, -1.7e308))
    if kind == 5:
        return "state", rng.choice((-1, 5, 99, 32767, -32768, rng.randrange(5)))
    if kind == 6:
        return "queue", rng.choice(_NAMES)
    return "id", -rng.getrandbits(60) - 1 if rng.random() < 0.5 else (1 << 62) + rng.getrandbits(60)


def _absurd(bits: int) -> tuple[int, ...]:
    return (-1, -(1 << bits), (1 << bits) - 1, -(1 << (bits - 2)))
