"""One way to break a storage."""

from __future__ import annotations

from dataclasses import dataclass

from accoda.storage.memory import MemoryStorage


@dataclass(frozen=True)
class Mutant:
    """A way to break a storage: a class instead of MemoryStorage, or a changed piece of one SQL statement."""

    promise: int
    breaks: str
    caught_by: str
    memory: type[MemoryStorage] | None = None
    sqlite: tuple[str, str, str] | None = None  # the statement's name, a piece of it, and what replaces the piece
    by_machine: bool = True
