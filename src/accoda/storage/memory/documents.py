"""Documents in memory: compare-and-set, time to live, list by prefix."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from accoda.errors import VersionConflict
from accoda.model import Document
from accoda.storage.memory.due import SLACK
from accoda.storage.protocol import DUE_AT_ONCE

TOMBSTONE_FOR = 24 * 3600 * 1000  # ms that an expired document is remembered


class Documents:
    """One that has expired stays for a day as a tombstone: its versions go on, so that an older version never fits."""

    def __init__(self) -> None:
        self.all: dict[str, Document] = {}
        self._ends: list[tuple[int, str]] = []  # a heap of hints: when which document expires

    def read(self, name: str, now: int) -> Document | None:
        document = self.all.get(name)
        if document is None or (document.expires_at is not None and document.expires_at <= now):
            return None
        return document

    def write(self, name: str, value: bytes, version: int | None, ttl: float | None, now: int) -> int:
        live = self.read(name, now)
        found = live.version if live else 0
        if version is not None and version != found:
            raise VersionConflict(name, version, found)
        last = self.all.get(name)
        new = last.version + 1 if last else 1
        expires_at = None if ttl is None else now + round(ttl * 1000)
        self.all[name] = Document(name, value, new, expires_at)
        if expires_at is not None:
            self._watch(expires_at, name)
        self._forget(now - TOMBSTONE_FOR)
        return new

    def _watch(self, moment: int, name: str) -> None:
        heappush(self._ends, (moment, name))
        if len(self._ends) > 2 * len(self.all) + SLACK:
            self._ends = [(each.expires_at, each.name) for each in self.all.values() if each.expires_at is not None]
            heapify(self._ends)

    def _forget(self, before: int) -> None:
        """Drop tombstones of documents that expired before a moment, a bounded number at a time."""
        for _ in range(DUE_AT_ONCE):
            if not self._ends or self._ends[0][0] > before:
                return
            moment, name = heappop(self._ends)
            found = self.all.get(name)
            if found is not None and found.expires_at == moment:  # not written since
                del self.all[name]

    def starting_with(self, prefix: str, now: int) -> list[Document]:
        names = sorted(name for name in self.all if name.startswith(prefix))
        return [found for name in names if (found := self.read(name, now))]
