"""The line of one queue while its lanes are balanced: who comes in, with which turn, and who is held back."""

from __future__ import annotations

from math import floor, inf
from typing import Any, NamedTuple

from accoda.model import NEWCOMER, TURN, Lanes
from accoda.storage.sqlite.transaction import READY, Transaction, carried

NO_RULES = Lanes()

Row = tuple[Any, ...]


class Held(NamedTuple):
    rank: float
    id: int
    cost: int
    line: Line
    new: Row | None = None  # the row of a job that is not in the file yet


class Line:
    """The line of one queue in a balance."""

    def __init__(self, tx: Transaction, queue: int) -> None:
        self.queue = queue
        self.rules = tx.rules(queue) or NO_RULES
        self._tx = tx
        self._firsts: dict[float, float] = {}  # the lowest turn of all lanes, by level; inf: there is none
        self._let_in = self._held_back = 0  # how many jobs
        # Jobs that were let in and are not written yet: ids and turns of those in the file, rows of the others.
        self._coming: list[tuple[int, float]] = []
        self._new: list[Row] = []

    def best_held(self, lane: bytes, count: int) -> list[Held]:
        return [Held(rank, id, cost, self) for rank, id, cost in self._tx.rows("best_held", self.queue, lane, count)]

    def worst_ready(self, lane: bytes, count: int) -> list[tuple[float, int, int]]:
        """Rank, id and queue."""
        return [(rank, id, self.queue) for rank, id in self._tx.rows("worst_ready", self.queue, lane, count)]

    def in_line_or_running(self, lane: bytes) -> int:
        found = self._tx.row("in_line_or_running", self.queue, lane)
        assert found is not None, "it counts"
        return int(found[0])

    def hold_back(self, ids: list[int]) -> None:
        if not ids:
            return
        self._tx.run("hold_back", carried(ids))
        self._held_back += len(ids)
        self._firsts.clear()  # the lowest turn may be among them

    def let_in(self, lane: bytes, jobs: list[Held], highest: float | None = inf) -> None:
        """Let jobs of a lane into the line. `highest`: the highest turn of the lane; inf: not known."""
        self._let_in += len(jobs)
        name = text(lane)
        lasts: dict[float, float] = {}  # the turns of these jobs: the highest by level
        for job in sorted(jobs) if len(jobs) > 1 else jobs:  # best first
            turn = job.rank
            if self.rules.fair:
                level = float(floor(turn))
                last = lasts[level] if level in lasts else self._last_turn(lane, level, highest)
                turn = self._turn(level, self.rules.turn_of(name, job.cost), last)
                if turn < level + 1:
                    lasts[level] = turn if last is None else max(last, turn)  # at the end of a level it may go back
                else:  # ranks are so high that a turn may be in another level
                    highest = inf
            if job.new is None:
                self._coming.append((job.id, turn))
            else:
                self._new.append((*job.new[:2], READY, turn, *job.new[4:]))

    def finish(self) -> None:
        self._write()
        if self._let_in:
            self._tx.touch_queue(self.queue)
        self._tx.count(self.queue, "ready", self._let_in - self._held_back)
        self._tx.count(self.queue, "held", self._held_back - self._let_in)

    def _turn(self, level: float, length: float, last: float | None) -> float:
        """Where a job comes into a fair line: see `accoda.storage.protocol`. `last`: the highest turn of its lane."""
        turn = self._first_turn(level) + length * NEWCOMER if last is None else last + length
        if turn >= level + 1 > level:
            turn = level + 1 - TURN
        # Where ranks are so high that a turn is nothing, it may be in another level.
        own = level if turn < level + 1 else float(floor(turn))
        if own in self._firsts and turn < own + 1:
            self._firsts[own] = min(self._firsts[own], turn)
        return turn

    def _last_turn(self, lane: bytes, level: float, highest: float | None) -> float | None:
        """The highest turn of a lane in a level."""
        if highest is None or highest < level:
            return None
        if highest < level + 1:
            return highest
        self._write()
        found = self._tx.row("last_turn", self.queue, lane, level, level + 1)
        return None if found is None else found[0]

    def _first_turn(self, level: float) -> float:
        """The lowest turn of all lanes in a level, or the level itself if there is none."""
        if level not in self._firsts:
            self._write()
            found = self._tx.row("first_turn", self.queue, level, level + 1)
            self._firsts[level] = inf if found is None else found[0]
        first = self._firsts[level]
        return first if first < inf else level

    def _write(self) -> None:
        """Before the line is read, and at the end: two statements for many jobs."""
        if self._coming:
            self._tx.run_many("let_in", self._coming)
            self._coming.clear()
        if self._new:
            self._tx.insert_jobs(self._new)
            self._new.clear()


def text(lane: bytes) -> str:
    return lane.decode("utf-8", "replace")
