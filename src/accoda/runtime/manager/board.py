"""Where processors can be put: a board of workers by queues, filled one processor at a time. Pure; no I/O.

Finding room for one more processor is a search for an augmenting path: if every worker that serves the queue is full, a
processor of another queue moves aside to another worker, and so on; the shortest such path is taken. So a queue is
refused only where no arrangement at all has room for it, and the first to come never takes away another's last place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

Placement = dict[str, dict[str, int]]
"""Worker to queue to how many of its processors; a queue without any is not named."""


class WorkerView(Struct, frozen=True):
    """One worker, as the rule sees it. `caps` limits a queue's processors in this worker; not named: no limit."""

    id: str
    max_processors: int
    queues: tuple[str, ...]
    caps: dict[str, int] = {}

    def most(self, queue: str) -> int:
        """How many processors of this worker the queue may have, were it alone."""
        if queue not in self.queues:
            return 0
        return max(0, min(self.max_processors, self.caps.get(queue, self.max_processors)))


def merge(workers: Iterable[WorkerView]) -> list[WorkerView]:
    """Workers that are alike as one big one: the same numbers fit, and are found in a fraction of the time.

    What fits on the big one fits on its m parts: deal the processors out like cards, queue after queue. Then no two
    parts differ by more than one, in a queue or in sum, so none gets more than a part's share of the big one's limits,
    rounded up; and those limits are m times a part's.
    """
    alike: dict[tuple[object, ...], list[WorkerView]] = {}
    for worker in workers:
        most = tuple(sorted((queue, worker.most(queue)) for queue in set(worker.queues)))
        alike.setdefault((worker.max_processors, most), []).append(worker)
    return [
        WorkerView(
            parts[0].id,
            parts[0].max_processors * len(parts),
            parts[0].queues,
            {queue: parts[0].most(queue) * len(parts) for queue in parts[0].queues},
        )
        for parts in alike.values()
    ]


class Board:
    """A placement under construction. It is valid after every step."""

    def __init__(self, workers: Sequence[WorkerView]) -> None:
        self.placement: Placement = {worker.id: {} for worker in workers}
        self._free = {worker.id: max(0, worker.max_processors) for worker in workers}
        self._most = {worker.id: {queue: worker.most(queue) for queue in worker.queues} for worker in workers}
        self._serving: dict[str, list[str]] = {}
        for worker in sorted(workers, key=lambda worker: worker.id):
            for queue in dict.fromkeys(worker.queues):
                self._serving.setdefault(queue, []).append(worker.id)

    def keep(self, wanted: Mapping[str, int], previous: Placement) -> None:
        """Begin with what stays of a previous placement: not more of a queue than wanted, nothing that is not allowed.

        Where a queue had more than it keeps, the worker with the most of it gives some up: that evens it out.
        """
        for queue in sorted(wanted):
            had = {worker: previous.get(worker, {}).get(queue, 0) for worker in self._serving.get(queue, [])}
            had = {worker: min(count, self._most[worker][queue]) for worker, count in had.items() if count > 0}
            for _ in range(sum(had.values()) - wanted[queue]):
                had[max(had, key=lambda worker: (had[worker], worker))] -= 1
            for worker, count in had.items():
                self._put(worker, queue, min(count, self._free[worker]))

    def add(self, queue: str) -> bool:
        """Find room for one more processor of a queue, with as few moves of others as can be. False: there is none."""
        came: dict[str, tuple[str, str]] = {}  # a queue that may move aside: out of this worker, for that queue
        line, seen = deque([queue]), {queue}
        tried: set[str] = set()
        while line:
            mover = line.popleft()
            open_to = [worker for worker in self._serving.get(mover, []) if self._has_room(worker, mover)]
            if free := [worker for worker in open_to if self._free[worker]]:
                self._shift(mover, self._best(free, mover), came)
                return True
            for worker in open_to:
                if worker in tried:
                    continue
                tried.add(worker)
                for other in sorted(self.placement[worker].keys() - seen):
                    seen.add(other)
                    came[other] = (worker, mover)
                    line.append(other)
        return False

    def total(self, queue: str) -> int:
        """How many processors a queue has over all workers."""
        return sum(self.placement[worker].get(queue, 0) for worker in self._serving.get(queue, []))

    def _best(self, free: list[str], queue: str) -> str:
        """Evenly: where the queue has least, then where most is free."""
        return min(free, key=lambda worker: (self.placement[worker].get(queue, 0), -self._free[worker], worker))

    def _shift(self, queue: str, worker: str, came: Mapping[str, tuple[str, str]]) -> None:
        """Walk the path back: the last queue goes to the free place, the one before it to the place that it left."""
        self._put(worker, queue, 1)
        while queue in came:
            left, follower = came[queue]
            self._put(left, queue, -1)
            self._put(left, follower, 1)
            queue = follower

    def _has_room(self, worker: str, queue: str) -> bool:
        return self.placement[worker].get(queue, 0) < self._most[worker][queue]

    def _put(self, worker: str, queue: str, count: int) -> None:
        row = self.placement[worker]
        self._free[worker] -= count
        row[queue] = row.get(queue, 0) + count
        if not row[queue]:
            del row[queue]
