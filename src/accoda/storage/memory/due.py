"""When to look at records again: a heap of hints.

A hint counts only if the record still says the same, so nothing is ever searched for in the heap. Stale hints are
dropped when they come to the top, or all at once when they are the majority.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

SLACK = 64
"""Stale hints that are not worth a clean-up."""


class HasDue(Protocol):
    due: int


class Due:
    """The moments of the records in some states."""

    def __init__(self, *states: Mapping[int, HasDue]) -> None:
        self._states = states
        self._heap: list[tuple[int, int]] = []  # moment, id

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, moment: int, *ids: int) -> None:
        """Look at these records again when the moment has come."""
        for id in ids:
            heappush(self._heap, (moment, id))
        if len(self._heap) > 2 * sum(map(len, self._states)) + SLACK:
            self._heap = [(record.due, id) for state in self._states for id, record in state.items()]
            heapify(self._heap)

    def next(self) -> int | None:
        """The soonest moment; perhaps of a stale hint."""
        return self._heap[0][0] if self._heap else None

    def apply(self, now: int, most: int, move: Callable[[Any], None]) -> int:
        """Move up to `most` records whose moment has come, oldest first, and count them. A stale hint is no move."""
        moved = 0
        while moved < most and self._heap and self._heap[0][0] <= now:
            _, id = heappop(self._heap)
            record = next((state[id] for state in self._states if id in state), None)
            # It may have moved on, or have another moment now, for which there is another hint.
            if record is not None and record.due <= now:
                move(record)
                moved += 1
        return moved
