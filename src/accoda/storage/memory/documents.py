"""Documents in memory: compare-and-set, time to live, list by prefix."""

from __future__ import annotations

from accoda.errors import VersionConflict
from accoda.model import Document


class Documents:
    """One that has expired stays as a tombstone: its versions go on, so that a version read long ago never fits."""

    def __init__(self) -> None:
        self.all: dict[str, Document] = {}

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
        self.all[name] = Document(name, value, new, None if ttl is None else now + round(ttl * 1000))
        return new

    def starting_with(self, prefix: str, now: int) -> list[Document]:
        names = sorted(name for name in self.all if name.startswith(prefix))
        return [found for name in names if (found := self.read(name, now))]
