"""Who waits for a shared job: what a user says of a waiter, and the log of those who joined and left.

The waiters that a store keeps with a job are a log: they are only ever added, and one who leaves adds a mark. So their
number never shrinks, and "not more waiters than these" (of `Done`, `Rank` and `drop`) always means "nothing has
happened since I looked". Whoever joins twice is one waiter, as it was the last time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from accoda.demand.score import Crowd, Weights
from accoda.errors import InvalidInput
from accoda.limits import KEY
from accoda.model import clean
from accoda.payload import encode
from accoda.times import milliseconds

D = TypeVar("D")
N = TypeVar("N", int, float)

JOINS: Final = 0
ASKS: Final = 1
LEAVES: Final = 2
"""An entry's kind: it wants the result delivered; it only wants it fetched; it has left."""


class Waiter(Struct, Generic[D], frozen=True, kw_only=False):
    """One who wants a result: `Waiter("automation-7", tier="pro", due=at, data=filters)`.

    `id` tells it from the others of the same key; `due` is when it wants the result (a datetime with a time zone, or
    milliseconds; None: now); `data` is what `deliver` needs of it, such as its own filter.
    """

    id: str
    tier: str = "free"
    due: datetime | int | None = None
    data: D = None  # type: ignore[assignment]


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """A waiter as it is stored. `due` and `fresh_after` are moments; `data` is msgpack."""

    kind: Literal[0, 1, 2]
    id: str
    tier: str = ""
    due: int | None = None
    fresh_after: int | None = None
    data: bytes = b"\xc0"


def entry_of(waiter: Waiter[Any], weights: Weights, fresh_after: int | None = None, kind: Literal[0, 1] = 0) -> Entry:
    """A waiter as it is stored, or an error that names what is wrong with it."""
    if not isinstance(waiter, Waiter):
        raise InvalidInput("waiter", f"must be a Waiter(id, tier, due, data), not {waiter!r:.60}")
    check_id(waiter.id)
    weights.tier(waiter.tier)
    due = None if waiter.due is None else milliseconds("due", waiter.due)
    return Entry(kind, waiter.id, waiter.tier, due, fresh_after, encode(waiter.data))


def check_id(id: object) -> None:
    """Refuse what cannot be a waiter's id."""
    if type(id) is not str or not 0 < len(id) <= KEY or clean(id) != id:
        raise InvalidInput("waiter.id", f"must be 1 to {KEY} characters of valid text without NUL, not {id!r:.60}")


def write_entry(entry: Entry) -> bytes:
    return _encode(entry)


def read_entries(stored: Iterable[bytes]) -> list[Entry]:
    """The log. An entry that cannot be read is nobody: it must not keep the others from what they wait for."""
    found = []
    for data in stored:
        try:
            found.append(_decoder.decode(data))
        except (ValueError, RecursionError):
            continue
    return found


def present(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Those who joined and have not left, in the order in which they first joined."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind == LEAVES:
            found.pop(entry.id, None)
        elif not _is_less(entry, found.get(entry.id)):
            found[entry.id] = entry
    return found


def _is_less(entry: Entry, before: Entry | None) -> bool:
    """One who waits for a delivery, and then only asks (he was given a stale result meanwhile), still waits for it."""
    return before is not None and entry.kind == ASKS and before.kind == JOINS


class Log:
    """The waiters of one job as far as this process has seen them.

    `seen` counts the stored entries that are in it. The crowd is kept up to date with each that joins or leaves; only
    when the earliest leaves, the next one is looked for.
    """

    __slots__ = ("_dues", "_earliest", "_present", "_tiers", "_weights", "id", "rank", "seen")

    def __init__(self, id: int, weights: Weights) -> None:
        self.id = id
        self.seen = 0
        self.rank: float | None = None
        """The rank that the job has, as far as is known."""
        self._weights = weights
        self._present: dict[str, Entry] = {}
        self._tiers: Counter[float] = Counter()
        self._dues: Counter[int] = Counter()
        self._earliest: int | None = None

    def add(self, stored: Sequence[bytes]) -> None:
        """The next entries."""
        self.seen += len(stored)
        for entry in read_entries(stored):
            self._note(entry)

    def join(self, entry: Entry) -> None:
        """The next entry, which this process has just stored."""
        self.seen += 1
        self._note(entry)

    def has(self, id: str) -> bool:
        return id in self._present

    @property
    def crowd(self) -> Crowd:
        if not self._present:
            return Crowd()
        if self._earliest is None:
            self._earliest = min(self._dues)
        return Crowd(len(self._present), min(self._tiers), self._earliest)

    def _note(self, entry: Entry) -> None:
        before = self._present.get(entry.id)
        if _is_less(entry, before):
            return
        if before is not None:
            self._forget(before)
        if entry.kind != LEAVES:
            self._present[entry.id] = entry
            due = entry.due or 0
            self._tiers[self._weights.points(entry.tier)] += 1
            self._dues[due] += 1
            if len(self._present) == 1 or (self._earliest is not None and due < self._earliest):
                self._earliest = due

    def _forget(self, entry: Entry) -> None:
        del self._present[entry.id]
        due = entry.due or 0
        _count_down(self._tiers, self._weights.points(entry.tier))
        _count_down(self._dues, due)
        if due == self._earliest and due not in self._dues:
            self._earliest = None


def _count_down(counter: Counter[N], value: N) -> None:
    counter[value] -= 1
    if not counter[value]:
        del counter[value]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Entry)
