"""Lanes inside a transaction: the rules of a queue, and the balance of the lanes that a step has touched.

What is in a lane is read from the index `jobs_lanes`, and what is in the line from `jobs_turns`; there is no counter.
No other process changes either meanwhile: the transaction holds the file's write lock since before it looked.

Lanes are bytes here: in a damaged file a name may be no text. (UTF-8 is ordered as code points are.)
"""

from __future__ import annotations

from math import floor, inf
from typing import Any, NamedTuple

import apsw
import msgspec

from accoda.model import NEWCOMER, TURN, Lanes
from accoda.storage.sqlite.transaction import READY, Transaction, carried

SWAPPED_AT_ONCE = 8
"""Held jobs that may go before ready ones: so many are read at first."""
NO_RULES = Lanes()


class Held(NamedTuple):
    id: int
    rank: float
    cost: int
    new: tuple[Any, ...] | None = None  # the row of a job that is not in the file yet


def set_lanes(tx: Transaction, name: str, rules: Lanes | None) -> None:
    if rules is not None:
        tx.make_number(name)
    known = tx.queue(name)
    if known is None:  # to take the rules of an unknown queue away does not make it
        return
    tx.run("set_lanes", known.number, None if rules is None else msgspec.json.encode(rules).decode())
    tx.note(known._replace(rules=rules))
    tx.touched_lanes[known.number] = {lane for (lane,) in tx.rows("all_lanes", known.number)}
    tx.touched.add(name)  # more may run at once
    balance(tx)


# -- balance


def balance(tx: Transaction) -> None:
    """The end of a step: of each lane that it touched, as many jobs are in the line as its limit allows."""
    while tx.touched_lanes:
        queue, names = tx.touched_lanes.popitem()
        _Balance(tx, queue).run(sorted(names))


class _Balance:
    """The lanes of one queue."""

    def __init__(self, tx: Transaction, queue: int) -> None:
        self._tx = tx
        self._queue = queue
        self._rules = tx.rules(queue) or NO_RULES
        self._firsts: dict[float, float] = {}  # the lowest turn of all lanes, by level; inf: there is none
        self._let_in = self._held_back = 0  # how many jobs
        self._coming: list[tuple[Held, float]] = []  # jobs that were let in and are not written yet, with their turns

    def run(self, lanes: list[bytes]) -> None:
        limits = {lane: self._rules.limit_of(_text(lane)) for lane in lanes}
        new = {lane: rows for lane in lanes if (rows := self._tx.new_in_lanes.pop((self._queue, lane), None))}
        # What happens in one lane changes nothing in another, so all of them are read before.
        limited = self._read_limited([lane for lane, limit in limits.items() if limit is not None])
        full = [lane for lane in new if lane in limited and self._is_full(limits[lane], len(new[lane]), limited[lane])]
        for lane in full:
            self._tx.run_many("insert_job", new.pop(lane))
        limited |= self._read_limited(full)
        others = self._read_held([lane for lane, limit in limits.items() if limit is None])
        for lane, limit in limits.items():
            coming = [Held(row[0], row[4], row[5], row) for row in new.get(lane, ())]
            if limit is None:
                held, highest = others[lane]
                self._add(lane, held + coming, highest)
            elif coming:
                self._add(lane, coming, limited[lane][1])
            else:
                self._balance(lane, limit, limited[lane])
        self._finish()

    @staticmethod
    def _is_full(limit: int | None, count: int, row: list[Any]) -> bool:
        """Whether more is to be done for so many new jobs than to let them in."""
        used, _, id, *_ = row
        return limit is None or id is not None or limit - used < count

    def _finish(self) -> None:
        self._write()
        known = self._tx.queue(self._queue)
        if self._let_in and known is not None:
            self._tx.touched.add(known.name)
        self._tx.count(self._queue, "ready", self._let_in - self._held_back)
        self._tx.count(self._queue, "held", self._held_back - self._let_in)

    def _read_limited(self, lanes: list[bytes]) -> dict[bytes, list[Any]]:
        return {lane: row for lane, *row in self._read("lanes_with_limit", lanes)}

    def _read_held(self, lanes: list[bytes]) -> dict[bytes, tuple[list[Held], float | None]]:
        """All held jobs of lanes, and the highest turn of each."""
        found: dict[bytes, tuple[list[Held], float | None]] = {}
        for lane, id, rank, cost, highest in self._read("held_in_lanes", lanes):
            held, _ = found.setdefault(lane, ([], highest))
            if id is not None:
                held.append(Held(id, rank, cost))
        return found

    def _read(self, statement: str, lanes: list[bytes]) -> list[tuple[Any, ...]]:
        return self._tx.rows(statement, apsw.carray(tuple(lanes)), self._queue) if lanes else []

    def _balance(self, lane: bytes, limit: int, row: list[Any]) -> None:
        used, highest, id, rank, cost, is_ahead = row  # of its best held job; and whether it goes before a ready one
        free = limit - used
        if free < 0 or is_ahead:
            self._exchange(lane, free)
        elif id is not None and free == 1:
            self._add(lane, [Held(id, rank, cost)], highest)
        elif id is not None and free:
            self._add(lane, self._best_held(lane, free), highest)

    def _exchange(self, lane: bytes, free: int) -> None:
        """First what leaves the line, then what comes in. (All that is ready, where more is taken than the limit.)"""
        gain, loss, size = max(0, free), max(0, -free), SWAPPED_AT_ONCE
        while True:
            best = self._best_held(lane, gain + size)
            worst = self._tx.rows("worst_ready", self._queue, lane, loss + size)
            pairs = zip(best[gain:], worst[loss:], strict=False)
            swaps = sum((held.rank, held.id) < (rank, id) for held, (id, rank) in pairs)  # from the first on
            if swaps < size:
                break
            size *= SWAPPED_AT_ONCE
        self._hold_back([id for id, _ in worst[: loss + swaps]])
        self._add(lane, best[: gain + swaps], inf)

    def _hold_back(self, ids: list[int]) -> None:
        self._tx.run("hold_back", carried(ids))
        self._held_back += len(ids)
        self._firsts.clear()  # the lowest turn may be among them

    def _best_held(self, lane: bytes, count: int) -> list[Held]:
        return [Held(*row) for row in self._tx.rows("best_held", self._queue, lane, count)]

    def _add(self, lane: bytes, jobs: list[Held], highest: float | None) -> None:
        """Let jobs of a lane into the line. `highest`: the highest turn of the lane; inf: not known."""
        self._let_in += len(jobs)
        name = _text(lane)
        last = -inf if highest is None else highest
        for job in sorted(jobs, key=_place) if len(jobs) > 1 else jobs:  # best first
            turn = job.rank
            if self._rules.fair:
                turn = self._turn(lane, job.rank, self._rules.turn_of(name, job.cost), last)
                last = max(last, turn)
            self._coming.append((job, turn))

    def _turn(self, lane: bytes, rank: float, length: float, highest: float) -> float:
        """Where a job comes into a fair line: see `accoda.storage.protocol`."""
        level = float(floor(rank))
        last = self._last_turn(lane, level, highest)
        turn = self._first_turn(level) + length * NEWCOMER if last is None else last + length
        if turn >= level + 1 > level:
            turn = level + 1 - TURN
        own = float(floor(turn))  # where ranks are so high that a turn is nothing, it may be another level
        if own in self._firsts and turn < own + 1:
            self._firsts[own] = min(self._firsts[own], turn)
        return turn

    def _last_turn(self, lane: bytes, level: float, highest: float) -> float | None:
        """The highest turn of a lane in a level."""
        if highest < level:
            return None
        if highest < level + 1:
            return highest
        self._write()
        found = self._tx.row("last_turn", self._queue, lane, level, level + 1)
        return None if found is None else found[0]

    def _first_turn(self, level: float) -> float:
        """The lowest turn of all lanes in a level, or the level itself if there is none."""
        if level not in self._firsts:
            self._write()
            found = self._tx.row("first_turn", self._queue, level, level + 1)
            self._firsts[level] = inf if found is None else found[0]
        first = self._firsts[level]
        return first if first < inf else level

    def _write(self) -> None:
        """Before the line is read, and at the end: two statements for many jobs."""
        held = [(job.id, turn) for job, turn in self._coming if job.new is None]
        new = [(*job.new[:2], READY, turn, *job.new[4:]) for job, turn in self._coming if job.new is not None]
        self._coming.clear()
        if held:
            self._tx.run_many("let_in", held)
        if new:
            self._tx.run_many("insert_job", new)


def _text(lane: bytes) -> str:
    return lane.decode("utf-8", "replace")


def _place(job: Held) -> tuple[float, int]:
    return job.rank, job.id
