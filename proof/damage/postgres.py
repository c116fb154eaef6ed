"""Tries to damage records of a PostgreSQL store, over a connection of its own. The columns' domains refuse it all."""

from __future__ import annotations

from random import Random
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from accoda.storage.postgres.storage import PostgresStorage
from proof.damage import prepare

NUMBERS = ("cost", "created_at", "start_time", "prev_start_time", "taken_at", "ended_at")
COUNTERS = ("attempts", "tries", "crashes", "waiters")
REALS = ("rank", "sort", "keep_for")
ABSURD_NUMBERS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62)
ABSURD_COUNTERS = (-1, -(1 << 31), (1 << 31) - 1)
ABSURD_REALS = (float("nan"), float("inf"), float("-inf"))
NO_NAMES = ("bad name", "", "-", "\u00fc", "x" * 200, "'; DROP TABLE jobs")


async def damage(store: PostgresStorage, rng: Random, count: int, queue: str) -> int:
    ids = await prepare(store, rng, count, queue)
    place = store._client.place
    connection = await asyncpg.connect(place.dsn, server_settings={"search_path": place.schema})
    try:
        return sum([await set_column(connection, *_change(rng), id) for id in ids])
    finally:
        await connection.close()


async def set_column(connection: Any, column: str, value: Any, id: int) -> bool:
    """Whether the engine lets this happen."""
    try:
        done: str = await connection.execute(f"UPDATE jobs SET {column} = $1 WHERE id = $2", value, id)
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError):
        return False
    return done == "UPDATE 1"


def _change(rng: Random) -> tuple[str, Any]:
    """A column, and what it is set to."""
    return rng.choice(
        (
            (rng.choice(NUMBERS), rng.choice(ABSURD_NUMBERS)),
            (rng.choice(COUNTERS), rng.choice(ABSURD_COUNTERS)),
            (rng.choice(REALS), rng.choice(ABSURD_REALS)),
            ("keep_for", -1.0),
            ("state", rng.choice((-2, 6, 99, 32767, -32768))),
            ("queue", rng.choice(NO_NAMES)),
            ("id", rng.choice((0, -1, -rng.getrandbits(60)))),
            (rng.choice((*NUMBERS, *COUNTERS, *REALS, "state", "id")), "text"),
            (rng.choice(("id", "queue", "state", "data", "rank", "attempts")), None),
        )
    )
