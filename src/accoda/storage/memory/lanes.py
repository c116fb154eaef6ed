"""The lanes of queues in memory: who is in the line and who is held. What the rules mean is in `storage.protocol`."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.storage.memory.due import SLACK
from accoda.storage.memory.record import Record

if TYPE_CHECKING:
    from accoda.storage.memory.queue import MemoryQueue


class Lane(Struct, gc=False):
    """The jobs of a lane that are in the line, held or running."""

    ready: dict[int, Record] = {}
    held: dict[int, Record] = {}
    best: list[tuple[float, int]] = []  # heap of (rank, id) of held jobs
    taken: int = 0
    last: dict[float, list[tuple[float, int]]] = {}  # by level: (turn, id) in the order in which they came in

    @property
    def is_empty(self) -> bool:
        return not (self.ready or self.held or self.taken)

    def hold(self, record: Record) -> None:
        self.held[record.id] = record
        heappush(self.best, (record.rank, record.id))
        if len(self.best) > 2 * len(self.held) + SLACK:
            self.best = [(each.rank, id) for id, each in self.held.items()]
            heapify(self.best)

    def next_held(self) -> Record | None:
        while self.best:
            rank, id = self.best[0]
            record = self.held.get(id)
            if record is not None and record.rank == rank:
                return record
            heappop(self.best)
        return None

    def note_turn(self, level: float, place: tuple[float, int]) -> None:
        stack = self.last.setdefault(level, [])
        stack.append(place)
        if len(stack) > 2 * len(self.ready) + SLACK:  # those that were taken are at the bottom
            self.last[level] = [(turn, id) for turn, id in stack if id in self.ready and self.ready[id].sort == turn]

    def last_ready(self, level: float) -> Record | None:
        """The last of its jobs in the line at this level: each turn is at least that of those before it."""
        stack = self.last.get(level)
        while stack:
            turn, id = stack[-1]
            record = self.ready.get(id)
            if record is not None and record.sort == turn:
                return record
            stack.pop()
        self.last.pop(level, None)
        return None


class LaneGroup:
    """The queues that share the limits of their lanes, in the order of their names; mostly one queue."""

    def __init__(self, *queues: MemoryQueue) -> None:
        self.queues = sorted(queues, key=lambda queue: queue.name)
        self.touched: set[str] = set()  # lanes that are to be balanced at the end of the step
        for queue in self.queues:
            queue.group = self
            self.touched |= queue.lanes.keys()

    def balance(self) -> None:
        """The end of a step: of each lane that it touched, as many jobs are in the line as the limit allows."""
        if not self.touched:
            return
        names, self.touched = sorted(self.touched), set()
        for name in names:
            self.balance_lane(name, [queue.lanes[name] for queue in self.queues if name in queue.lanes])
            for queue in self.queues:
                if name in queue.lanes and queue.lanes[name].is_empty:
                    del queue.lanes[name]

    def balance_lane(self, name: str, lanes: list[Lane]) -> None:
        room = self.limit_of(name) - sum(lane.taken for lane in lanes)
        count = sum(len(lane.ready) for lane in lanes)
        while count > room and (worst := _worst(lanes)) is not None:
            worst.queue.hold_back(worst)
            count -= 1
        coming: list[Record] = []
        while (best := _best(lanes)) is not None:
            if count >= room:
                worst = _worst(lanes)
                if worst is None or worst.place < best.place:
                    break
                worst.queue.hold_back(worst)  # a worse job makes room for a better one
                count -= 1
            best.queue.release(best)
            coming.append(best)
            count += 1
        for record in coming:
            record.queue.let_in(record)

    def limit_of(self, lane: str) -> float:
        given = [queue.rules.limit_of(lane) for queue in self.queues if queue.rules is not None]
        return min((limit for limit in given if limit is not None), default=inf)


def _best(lanes: Iterable[Lane]) -> Record | None:
    """The best held job of a lane in all its queues."""
    best = (record for lane in lanes if (record := lane.next_held()) is not None)
    return min(best, key=_place, default=None)


def _worst(lanes: Iterable[Lane]) -> Record | None:
    """The worst job that a lane has in the line."""
    return max((record for lane in lanes for record in lane.ready.values()), key=_place, default=None)


def _place(record: Record) -> tuple[float, int]:
    return record.place
