"""Storages whose documents go wrong."""

from __future__ import annotations

from accoda.storage.memory import MemoryStorage
from proof.mutants.mutant import mutant


@mutant("a document is overwritten whatever its version", "TestDocuments::test_a_write_with_another_version_is_refused")
class VersionUnchecked(MemoryStorage):
    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        return await super().write(name, value, ttl=ttl)


@mutant("an old version fits a document that came after an expired one", "TestTimeToLive::test_versions_go_on_after_it")
class VersionsBeginAgain(MemoryStorage):
    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        if self._documents.read(name, self._now()) is None:
            self._documents.all.pop(name, None)
        return await super().write(name, value, version=version, ttl=ttl)
