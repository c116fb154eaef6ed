"""The bare PostgreSQL: the same functions, called straight through asyncpg, answers left as they come."""

from __future__ import annotations

from typing import Any, Self

import asyncpg  # type: ignore[import-untyped]

from accoda.storage.postgres.client import queries_for
from accoda.storage.postgres.open import SESSION
from benchmarks.raw.shape import PAYLOAD, Leases

QUERIES = queries_for("accoda")


class RawPostgres:
    def __init__(self, connection: Any, queue: str, levels: int) -> None:
        self._connection = connection
        self._queue = queue
        self._levels = levels

    @classmethod
    async def open(cls, url: str, queue: str, levels: int) -> Self:
        return cls(await asyncpg.connect(url, server_settings=SESSION), queue, levels)

    async def enqueue(self, count: int) -> None:
        ranks = [float(number % self._levels) for number in range(count)]
        nothing: list[Any] = []
        await self._connection.fetchrow(
            QUERIES["enqueue"], None, [self._queue] * count, [PAYLOAD] * count, ranks if any(ranks) else [],
            *[nothing] * 8,
        )  # fmt: skip

    async def take(self, count: int) -> Leases:
        rows = await self._connection.fetch(QUERIES["take"], None, self._queue, count, 60_000, None, "")
        return [(row[0], row[5]) for row in rows]

    async def settle(self, leases: Leases) -> None:
        ids, tokens = [id for id, _ in leases], [attempts for _, attempts in leases]
        assert await self._connection.fetchval(QUERIES["finish"], None, self._queue, ids, tokens, []) is None

    async def close(self) -> None:
        await self._connection.close()
