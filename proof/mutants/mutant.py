"""What a mutant is, the list of all of them, and the fixture that runs the suite on one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import ClassVar, TypeVar

from accoda.clock import Clock
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import LaneGroup, MemoryQueue
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture

Kind = TypeVar("Kind", bound=type[MemoryStorage])


@dataclass(frozen=True)
class Mutant:
    """A class instead of MemoryStorage, or a changed piece of one SQL statement."""

    breaks: str
    caught_by: str
    memory: type[MemoryStorage] | None = None
    sqlite: tuple[str, str, str] | None = None  # the statement's name, a piece of it, and what replaces the piece
    by_machine: bool = True


MUTANTS: dict[str, Mutant] = {}
"""By name: the class `LateDone` is the mutant "late-done"."""


def mutant(breaks: str, caught_by: str, *, by_machine: bool = True) -> Callable[[Kind], Kind]:
    """Registers a broken memory storage."""

    def register(kind: Kind) -> Kind:
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
        MUTANTS[name] = Mutant(breaks, caught_by, kind, by_machine=by_machine)
        return kind

    return register


class BrokenQueue(MemoryStorage):
    """A storage whose queues are of the class `Queue`, in groups of the class `Group`."""

    Queue: ClassVar[type[MemoryQueue]] = MemoryQueue
    Group: ClassVar[type[LaneGroup]] = LaneGroup

    def _new_queue(self, name: str) -> MemoryQueue:
        return self.Queue(name)

    def _group(self, *queues: MemoryQueue) -> LaneGroup:
        return self.Group(*queues)


@asynccontextmanager
async def mutant_fixture(name: str) -> AsyncIterator[StoreFixture]:
    """The fixture of a mutant. An empty name is memory as it should be, and "sqlite" is SQLite as it should be."""
    found = MUTANTS.get(name)
    if found is None and name not in ("", "sqlite"):
        raise ValueError(f"no mutant is called {name!r}")
    if name.startswith("sqlite"):
        with TemporaryDirectory() as folder, _changed(found.sqlite if found else None):
            url = f"sqlite:///{folder}/jobs.db"
            yield ManualStoreFixture(lambda clock: open_storage(url, clock=clock), url=url, shared=True)
    else:
        kind = found.memory if found and found.memory else MemoryStorage
        yield ManualStoreFixture(_opener(kind), url="memory://", shared=False)


def _opener(kind: type[MemoryStorage]) -> Callable[[Clock], Awaitable[Store]]:
    async def opener(clock: Clock) -> Store:
        return kind(clock)

    return opener


@contextmanager
def _changed(change: tuple[str, str, str] | None) -> Iterator[None]:
    """While it lasts, one statement of the SQLite storage says something else."""
    from accoda.storage.sqlite.transaction import SQL

    if change is None:
        yield
        return
    name, old, new = change
    text = SQL[name]
    if old not in text:
        raise ValueError(f"the statement {name!r} no longer has {old!r}: change this mutant with it")
    SQL[name] = text.replace(old, new)
    try:
        yield
    finally:
        SQL[name] = text


lane_mutant = partial(mutant, by_machine=False)
"""One of lanes. The suite has a test for each. The machine takes seconds, so it is asked to find a few of them only."""
