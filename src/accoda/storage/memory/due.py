"""When to look at the records of a line again: a heap of hints.

A hint counts only if the record still says the same, so nothing is ever searched for in the heap. Stale hints are
dropped when they come to the top, or all at once when they are the majority.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accoda.storage.memory.line import Record

_SLACK = 64  # stale hints that are not worth a clean-up


class Due:
    """The moments of the records in some states of a line."""

    def __init__(self, *states: Mapping[int, Record]) -> None:
        self._states = states
        self._heap: list[tuple[int, int, tuple[int, ...]]] = []  # (moment, tie-breaker, ids): one for a whole batch
        self._ids = 0

    def watch(self, moment: int, ids: tuple[int, ...]) -> None:
        """Look at these records again when the moment has come."""
        heappush(self._heap, (moment, ids[0], ids))
        self._ids += len(ids)
        if self._ids > 2 * sum(map(len, self._states)) + _SLACK:
            self._heap = [(r.due, r.id, (r.id,)) for state in self._states for r in state.values()]
            heapify(self._heap)
            self._ids = len(self._heap)

    def next(self) -> int | None:
        """The soonest moment; perhaps of a stale hint."""
        return self._heap[0][0] if self._heap else None

    def apply(self, now: int, most: int, move: Callable[[Record], None]) -> int:
        """Move up to `most` records out of these states, those whose moment came first; tell how many.

        A stale hint is no move: it costs a look, which the call that left it behind has saved.
        """
        moved = 0
        while moved < most and self._heap and self._heap[0][0] <= now:
            moment, _, ids = heappop(self._heap)
            for place, id in enumerate(ids):
                if moved == most:
                    heappush(self._heap, (moment, id, ids[place:]))
                    self._ids += len(ids) - place
                    break
                record = self._find(id)
                # It may have moved on, or have been given another moment, for which there is another hint.
                if record is not None and record.due <= now:
                    move(record)
                    moved += 1
            self._ids -= len(ids)
        return moved

    def _find(self, id: int) -> Record | None:
        for state in self._states:
            record = state.get(id)
            if record is not None:
                return record
        return None

    def clear(self) -> None:
        self._heap.clear()
        self._ids = 0
