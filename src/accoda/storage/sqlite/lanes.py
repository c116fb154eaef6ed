"""Lanes inside a transaction: the rules of a queue, and the balance of the lanes that a step has touched.

What is in a lane is read from the index `jobs_lanes`, and what is in the line from `jobs_turns`; there is no counter.
No other process changes either meanwhile: the transaction holds the file's write lock since before it looked. That
holds for all queues that share limits, too: they are in one file.

Lanes are bytes here: in a damaged file a name may be no text. (UTF-8 is ordered as code points are.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import apsw
import msgspec

from accoda.model import Lanes
from accoda.storage.sqlite.line import Held, Line, Row, text
from accoda.storage.sqlite.transaction import Transaction

MOVED_AT_ONCE = 1000
"""Jobs of a lane that one step moves into the line at most, or out of it, so that no step is long."""
SWAPPED_AT_ONCE = 8
"""Held jobs that may go before ready ones: so many are read at first."""
NO_LIMIT = 1 << 31  # more than there are jobs


# -- other rules


def set_lanes(tx: Transaction, name: str, rules: Lanes | None) -> list[int]:
    """The first step of it; gives the queues for which `go_on` has more to do."""
    if rules is not None:
        tx.make_number(name)
    known = tx.queue(name)
    if known is None:  # to take the rules of an unknown queue away does not make it
        return []
    shared = None if rules is None else rules.shared
    others = tx.group(known.number)
    tx.run("set_lanes", known.number, None if rules is None else msgspec.json.encode(rules).decode(), shared)
    tx.note(known._replace(rules=rules, shared=None if shared is None else shared.encode()))
    touched = {*others, *tx.group(known.number)}
    for queue in touched:
        tx.set_unbalanced(queue, b"")
        tx.touch_queue(queue)  # more may run at once
    return go_on(tx, touched)


def go_on(tx: Transaction, queues: Iterable[int]) -> list[int]:
    """The next step for queues whose lanes may not be balanced; gives those for which there is more to do."""
    done: set[int] = set()
    for queue in queues:
        if queue not in done and tx.unbalanced(queue) is not None:
            _balance_next(tx, queue)
            done.update(tx.group(queue))
    return [queue for queue in queues if tx.unbalanced(queue) is not None]


def is_balanced(tx: Transaction, queue: int) -> bool:
    """Whether all lanes of a queue are balanced. If not, this step does its part of that.

    Until they are, `take` gives nothing, so no limit is exceeded meanwhile; and as each `take` does a part, and `wait`
    does not sleep, the rest is done though the process that began it has died.
    """
    return tx.unbalanced(queue) is None or not go_on(tx, [queue])


def _balance_next(tx: Transaction, queue: int) -> None:
    """Balance the lanes of the next thousand jobs of the queues that share limits with this one."""
    group = tx.group(queue)
    start = min(lane for each in group if (lane := tx.unbalanced(each)) is not None)
    pages = [[lane for (lane,) in tx.rows("next_lanes", each, start, MOVED_AT_ONCE)] for each in group]
    end = min((page[-1] for page in pages if len(page) == MOVED_AT_ONCE), default=None)
    lanes = {lane for page in pages for lane in page if end is None or lane <= end}
    for each in group:
        tx.set_unbalanced(each, None if end is None else end + b"\0")  # behind it: no name has such a character
    if lanes:
        tx.touched_lanes.setdefault(queue, {}).update((lane, []) for lane in lanes)
        balance(tx)


def _leave_unbalanced(tx: Transaction, lines: Sequence[Line], lane: bytes) -> None:
    """There was too much to do for one step."""
    for line in lines:
        before = tx.unbalanced(line.queue)
        tx.set_unbalanced(line.queue, lane if before is None else min(lane, before))


# -- balance


def balance(tx: Transaction) -> None:
    """The end of a step: of each lane that it touched, as many jobs are in the line as its limit allows."""
    while tx.touched_lanes:
        queue, lanes = tx.touched_lanes.popitem()
        if not lanes:
            continue
        group = tx.group(queue)
        balanced = Balance(tx, queue) if len(group) == 1 else SharedBalance(tx, group)
        balanced.run(lanes)


class Balance:
    """The lanes of one queue."""

    def __init__(self, tx: Transaction, queue: int) -> None:
        self._tx = tx
        self._line = Line(tx, queue)

    def run(self, lanes: dict[bytes, list[Row]]) -> None:
        limits = {lane: self._line.rules.limit_of(text(lane)) for lane in sorted(lanes)}
        # What happens in one lane changes nothing in another, so all of them are read before.
        found = self._read(limits)
        full = {lane: limits[lane] for lane, new in lanes.items() if new and _is_full(limits[lane], new, found[lane])}
        for lane in full:
            self._tx.insert_jobs(lanes[lane])
        found |= self._read(full)
        for lane, limit in limits.items():
            new = lanes[lane]
            if new and lane not in full:
                jobs = [Held(row[4], row[0], row[5], self._line, row) for row in new]
                self._line.let_in(lane, jobs, found[lane][2])
            else:
                self._balance(lane, limit, found[lane])
        self._line.finish()

    def _read(self, limits: dict[bytes, int | None]) -> dict[bytes, Row]:
        """Of each lane, what `_balance` needs."""
        found: dict[bytes, Row] = {}
        for is_limited in (True, False):
            lanes = tuple(lane for lane, limit in limits.items() if (limit is not None) is is_limited)
            if lanes:
                rows = self._tx.rows("lanes_now", apsw.carray(lanes), self._line.queue, is_limited)
                found.update({row[0]: row for row in rows})
        return found

    def _balance(self, lane: bytes, limit: int | None, row: Row) -> None:
        _, used, highest, id, rank, cost, is_ahead = row  # of its best held job; and whether it goes before a ready one
        free = NO_LIMIT if limit is None else limit - used
        if free == 1 and id is not None and not is_ahead:
            self._line.let_in(lane, [Held(rank, id, cost, self._line)], highest)
        elif free < 0 or is_ahead or (free and id is not None):
            exchange(self._tx, [self._line], lane, free, highest)


def _is_full(limit: int | None, new: list[Row], row: Row) -> bool:
    """Whether more is to be done for these new jobs than to let them in."""
    return row[3] is not None or (limit is not None and limit - row[1] < len(new))


class SharedBalance:
    """The lanes of queues that share their limits. Each is read on its own: slower, but simple."""

    def __init__(self, tx: Transaction, queues: list[int]) -> None:
        self._tx = tx
        self._lines = [Line(tx, queue) for queue in queues]

    def run(self, lanes: dict[bytes, list[Row]]) -> None:
        """`lanes`: those that were touched in one of the queues."""
        touched = [lanes, *(self._tx.touched_lanes.pop(line.queue, {}) for line in self._lines)]
        for each in touched:
            self._tx.insert_jobs([row for new in each.values() for row in new])
        for lane in sorted(set().union(*touched)):
            exchange(self._tx, self._lines, lane, self._free(lane))
        for line in self._lines:
            line.finish()

    def _free(self, lane: bytes) -> int:
        """How many more jobs of the lane may be in the line or run."""
        limits = [line.rules.limit_of(text(lane)) for line in self._lines]
        limit = min((limit for limit in limits if limit is not None), default=None)
        return NO_LIMIT if limit is None else limit - sum(line.in_line_or_running(lane) for line in self._lines)


def exchange(tx: Transaction, lines: Sequence[Line], lane: bytes, free: int, highest: float | None = inf) -> None:
    """First what leaves the line, then what comes in. (All that is ready, where more is taken than the limit.)

    Where that is too much for one step, only the worst leave, or only the best come: those whom the steps that follow
    would choose as well.
    """
    gain, loss = min(max(0, free), MOVED_AT_ONCE), min(max(0, -free), MOVED_AT_ONCE)
    swaps, size = 0, 0 if MOVED_AT_ONCE in (gain, loss) else SWAPPED_AT_ONCE
    while True:
        best = sorted(job for line in lines for job in line.best_held(lane, gain + size))
        worst = sorted((job for line in lines for job in line.worst_ready(lane, loss + size)), reverse=True)
        if not size:
            break
        pairs = zip(best[gain:], worst[loss:], strict=False)
        swaps = min(MOVED_AT_ONCE, sum((held.rank, held.id) < ready[:2] for held, ready in pairs))  # from the first on
        if swaps < size:
            break
        size *= SWAPPED_AT_ONCE
    out, come = worst[: loss + swaps], best[: gain + swaps]
    for line in lines:
        line.hold_back([id for _, id, queue in out if queue == line.queue])
    for line in lines:
        line.let_in(lane, [job for job in come if job.line is line], inf if out else highest)
    if len(out) >= MOVED_AT_ONCE or len(come) >= MOVED_AT_ONCE:
        _leave_unbalanced(tx, lines, lane)
