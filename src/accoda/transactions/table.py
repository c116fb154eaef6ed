"""The table of an outbox as the relay sees it, over a connection of its own to the caller's database."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from accoda.errors import StorageUnavailable
from accoda.transactions.outbox import NAME_ROW

POLL = 1.0
"""Seconds between two looks where nothing told of a new row."""


class Row(Struct, frozen=True):
    """A row of the table, that was written `age` seconds ago by the database's clock."""

    id: str
    jobs: bytes
    age: float


class Table(Protocol):
    """A table that is open, for one event loop. Errors are `StorageError`s."""

    name: str
    """What tells this outbox from others that share a store: it is in the table itself, whatever URL leads there."""

    async def read(self, without: Collection[str], limit: int) -> list[Row]:
        """The oldest rows, except for those with the ids in `without`."""
        ...

    async def delete(self, ids: Collection[str]) -> None:
        """Delete rows; those that are gone already do no harm."""
        ...

    async def wait(self, timeout: float) -> None:
        """Return when there may be a new row, or when the time is over."""
        ...

    async def count(self) -> int:
        """How many rows wait."""
        ...


def checked(name: str, rows: list[Row]) -> list[Row]:
    """The rows without the first one, which has the name. The table may have been made anew since it was opened."""
    if not rows or rows[0].id != NAME_ROW or rows[0].jobs.hex() != name:
        raise StorageUnavailable("the outbox was emptied or made anew; it is opened again")
    return rows[1:]
