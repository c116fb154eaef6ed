"""Storages whose `purge` goes wrong."""

from __future__ import annotations

from accoda.model import State
from accoda.storage.memory import MemoryStorage
from proof.mutants.mutant import mutant


@mutant("purge deletes jobs however young", "TestRetention::test_takes_only_what_is_old_enough")
class PurgeIgnoresBefore(MemoryStorage):
    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        return await super().purge(queue, state, limit=limit)


@mutant("purge deletes more than it was asked to", "TestRetention::test_takes_no_more_than_the_limit")
class PurgeIgnoresLimit(MemoryStorage):
    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        return await super().purge(queue, state, before=before)
