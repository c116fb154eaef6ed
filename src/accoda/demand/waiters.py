"""The waiters of a shared job: what a user says of one, and the log of those that joined and left.

The waiters that a store keeps with a job are a log: entries are only ever added, and a waiter that leaves adds one too.
So their number never shrinks, and the fence "no more waiters than these" (of `Done`, `Rerank` and `Remove`) always
means "nothing has happened since I looked". A waiter that joins twice is one waiter, as described the last time.
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
from accoda.model import check_lane, clean
from accoda.payload import encode
from accoda.times import milliseconds

D = TypeVar("D")
N = TypeVar("N", int, float)

JOINS: Final = 0
ASKS: Final = 1
LEAVES: Final = 2
"""The kinds of entries: the result shall be delivered; it shall only be fetched; the waiter has left."""


class Waiter(Struct, Generic[D], frozen=True, kw_only=False):
    """One that wants a result: `Waiter("automation-7", tier="pro", due=at, data=filters)`.

    `id` identifies it among the waiters of a key; `due` is when it wants the result (a datetime with a time zone, or
    milliseconds; None: now); `data` is for `deliver`, such as a filter of its own.
    """

    id: str
    tier: str = "free"
    due: datetime | int | None = None
    data: D = None  # type: ignore[assignment]


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """An entry of the log. `due` and `fresh_after` are moments; `data` is msgpack. `leaves` is the id of the job that a
    waiter leaves: where that has ended, the entry comes too late and means nothing, in whichever job it is by then.
    `lane` is that of the fetch, if there is none that the waiter could join."""

    kind: Literal[0, 1, 2]
    id: str
    tier: str = ""
    due: int | None = None
    fresh_after: int | None = None
    data: bytes = b"\xc0"
    leaves: int | None = None
    lane: str | None = None


def entry_of(
    waiter: Waiter[Any],
    weights: Weights,
    fresh_after: int | None = None,
    kind: Literal[0, 1] = JOINS,
    lane: str | None = None,
) -> Entry:
    """The entry of a waiter; the error names what is wrong with it."""
    if not isinstance(waiter, Waiter):
        raise InvalidInput("waiter", f"must be a Waiter(id, tier, due, data), not {waiter!r:.60}")
    check_id(waiter.id)
    weights.check_tier(waiter.tier)
    due = None if waiter.due is None else milliseconds("due", waiter.due)
    if lane is not None:
        check_lane(lane)
    return Entry(kind, waiter.id, waiter.tier, due, fresh_after, encode(waiter.data), lane=lane)


def check_id(id: object) -> None:
    """Refuse an id that cannot be stored."""
    if type(id) is not str or not 0 < len(id) <= KEY or clean(id) != id:
        raise InvalidInput("waiter.id", f"must be 1 to {KEY} characters of valid text without NUL, not {id!r:.60}")


def write_entry(entry: Entry) -> bytes:
    return _encode(entry)


def read_entries(stored: Iterable[bytes]) -> list[Entry]:
    """The log. An entry that cannot be read is left out: it must not keep the others from their result."""
    found = []
    for data in stored:
        try:
            found.append(_decoder.decode(data))
        except (ValueError, RecursionError):
            continue
    return found


def present(entries: Iterable[Entry], job: int | None) -> dict[str, Entry]:
    """The waiters of a job that joined and have not left, in the order in which they first joined."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind == LEAVES:
            if entry.leaves == job:
                found.pop(entry.id, None)
        elif not _adds_nothing(entry, found.get(entry.id)):
            found[entry.id] = entry
    return found


def _adds_nothing(entry: Entry, before: Entry | None) -> bool:
    """A waiter for a delivery that then only asks (it got a stale result meanwhile) still waits for the delivery."""
    return before is not None and entry.kind == ASKS and before.kind == JOINS


class WaiterLog:
    """The log of one job, as far as this process has read it.

    `seen` counts the stored entries that it covers, `rank` is the job's rank as far as is known. The crowd is updated
    with each entry; only when the earliest waiter leaves, the next one is searched for.
    """

    __slots__ = ("_dues", "_earliest", "_present", "_tiers", "_weights", "id", "rank", "seen")

    def __init__(self, id: int, weights: Weights) -> None:
        self.id = id
        self.seen = 0
        self.rank: float | None = None
        self._weights = weights
        self._present: dict[str, Entry] = {}
        self._tiers: Counter[float] = Counter()
        self._dues: Counter[int] = Counter()
        self._earliest: int | None = None

    def add(self, stored: Sequence[bytes]) -> None:
        """Add the next stored entries."""
        self.seen += len(stored)
        for entry in read_entries(stored):
            self._note(entry)

    def add_own(self, entry: Entry) -> None:
        """Add the next entry, which this process has just stored."""
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
        if _adds_nothing(entry, before) or (entry.kind == LEAVES and entry.leaves != self.id):
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
