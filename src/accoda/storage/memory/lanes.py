"""An ordering of (rank, id) pairs: lowest rank first, then lowest id.

A plain heap of a million pairs takes two and a half times as long to pop as one of a thousand. Ids grow and ranks
repeat, so each rank gets a lane that is filled at its end and emptied at its head; only ids that come back out of order
(retried, delayed, reranked jobs) go through a heap. `docs/decisions/0003-memory-order.md` has the figures.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice

_COMPACT = 1024  # ids left behind the head of a lane before they are dropped


class Lane:
    """The ids of one rank."""

    __slots__ = ("head", "late", "line")

    def __init__(self, id: int) -> None:
        self.line = [id]  # ascending; those before `head` are gone
        self.head = 0
        self.late: list[int] | None = None  # a heap of ids that came out of order

    def push(self, id: int) -> None:
        line = self.line
        if self.head == len(line) or id > line[-1]:
            line.append(id)
        elif self.late is None:
            self.late = [id]
        else:
            heappush(self.late, id)

    def first(self) -> int | None:
        line = self.line
        if self.late:
            late = self.late[0]
            return late if self.head == len(line) else min(late, line[self.head])
        return line[self.head] if self.head < len(line) else None

    def pop(self) -> None:
        """Drop what `first` gave."""
        line = self.line
        if self.late and (self.head == len(line) or self.late[0] < line[self.head]):
            heappop(self.late)
            return
        self.head += 1
        if self.head >= _COMPACT and self.head * 2 >= len(line):
            del line[: self.head]
            self.head = 0

    @property
    def size(self) -> int:
        return len(self.line) - self.head + len(self.late or ())

    def before(self, id: int) -> Iterator[int]:
        """The ids below this one, in no order, and perhaps some of `late` above it."""
        yield from islice(self.line, self.head, bisect_left(self.line, id, self.head))
        yield from self.late or ()

    def after(self, id: int) -> Iterator[int]:
        """The ids above this one, in no order, and perhaps some of `late` below it."""
        yield from islice(self.line, bisect_right(self.line, id, self.head), None)
        yield from self.late or ()

    def sample(self, most: int) -> Iterator[int]:
        """Up to so many of its ids, evenly spaced."""
        size, rest = self.size, len(self.line) - self.head
        for place in _spread(size, most):
            yield self.line[self.head + place] if place < rest else (self.late or ())[place - rest]


class Lanes:
    """All lanes of a queue, and how many ids they hold."""

    __slots__ = ("_lanes", "_ranks", "size")

    def __init__(self) -> None:
        self._lanes: dict[float, Lane] = {}
        self._ranks: list[float] = []  # a heap of the ranks that have a lane
        self.size = 0

    def push(self, rank: float, id: int) -> None:
        self.size += 1
        lane = self._lanes.get(rank)
        if lane is None:
            self._lanes[rank] = Lane(id)
            heappush(self._ranks, rank)
        else:
            lane.push(id)

    def first(self) -> tuple[float, Lane, int] | None:
        """The lowest rank, its lane and the lane's lowest id."""
        while self._ranks:
            rank = self._ranks[0]
            lane = self._lanes[rank]
            id = lane.first()
            if id is not None:
                return rank, lane, id
            del self._lanes[rank]
            heappop(self._ranks)
        return None

    def pop(self, lane: Lane) -> None:
        """Drop what `first` gave."""
        lane.pop()
        self.size -= 1

    def __len__(self) -> int:
        return len(self._ranks)

    def in_order(self) -> Iterator[tuple[float, Lane]]:
        """The lanes, lowest rank first. The cost is that of those that are asked for, however many there are."""
        ranks = self._ranks
        near = [(ranks[0], 0)] if ranks else []  # a heap: the children of those given are the next that may follow
        while near:
            rank, place = heappop(near)
            yield rank, self._lanes[rank]
            for child in range(2 * place + 1, min(2 * place + 3, len(ranks))):
                heappush(near, (ranks[child], child))

    def sample(self, most: int) -> Iterator[tuple[float, Lane]]:
        """Up to so many lanes, evenly spaced over the heap of ranks, which has no other order than that."""
        for place in _spread(len(self._ranks), most):
            rank = self._ranks[place]
            yield rank, self._lanes[rank]


def _spread(size: int, most: int) -> Iterator[int]:
    """Up to `most` evenly spaced places of `size`, none of them more to the front than to the back.

    >>> list(_spread(9, 3)), list(_spread(2, 3))
    ([1, 4, 7], [0, 1])
    """
    number = min(size, most)
    return ((2 * n + 1) * size // (2 * number) for n in range(number))
