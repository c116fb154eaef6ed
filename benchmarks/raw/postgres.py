"""The bare PostgreSQL: the same functions, called straight through asyncpg, answers left as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import asyncpg  # type: ignore[import-untyped]

from accoda.storage.postgres.client import call_of
from accoda.storage.postgres.connection import SESSION
from benchmarks.raw.shape import PAYLOAD, Leases

ENQUEUE, TAKE, SETTLE = call_of("accoda", "enqueue", 4), call_of("accoda", "take", 6), call_of("accoda", "settle", 10)


def new_job(queue: str, data: bytes, rank: float | None = None, cost: int | None = None) -> tuple[Any, ...]:
    return queue, data, rank, None, None, cost, None, None, None, None, None, None


def leases_of(rows: Sequence[Any]) -> Leases:
    """Of the rows of a take: the id with the moment of the take, and the attempts."""
    return [((row[0], row[12]), row[5]) for row in rows]


def settle_arguments(queue: str, leases: Leases) -> tuple[Any, ...]:
    leases = sorted(leases)
    ids, takes, runs = [id for (id, _), _ in leases], [at for (_, at), _ in leases], [run for _, run in leases]
    return None, ids, runs, takes, [queue] * len(ids), [], [], [], [], False


class RawPostgres:
    def __init__(self, connection: Any, queue: str, levels: int) -> None:
        self._connection = connection
        self._queue = queue
        self._levels = levels

    @classmethod
    async def open(cls, url: str, queue: str, levels: int) -> Self:
        return cls(await asyncpg.connect(url, server_settings=SESSION), queue, levels)

    async def enqueue(self, count: int) -> None:
        jobs = [new_job(self._queue, PAYLOAD, float(number % self._levels)) for number in range(count)]
        await self._connection.fetchrow(ENQUEUE, None, jobs, False, [])

    async def take(self, count: int) -> Leases:
        return leases_of(await self._connection.fetch(TAKE, None, self._queue, count, 60_000, None, ""))

    async def settle(self, leases: Leases) -> None:
        assert await self._connection.fetchval(SETTLE, *settle_arguments(self._queue, leases)) is None

    async def close(self) -> None:
        await self._connection.close()
