"""A transaction: the statements, what is known of the queues, and what a step gathers before it writes it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import apsw
import msgspec

from accoda.limits import KEY
from accoda.model import Lanes, NewJob, Report, ReportKind, clean
from accoda.storage.common.scripts import load_queries

SQL = load_queries("accoda.storage.sqlite", "queries.sql")
ROWS_AT_ONCE = 20
"""Jobs that one statement inserts: a third faster than one by one, and see `STATEMENTS` in `connection.py`."""
_INSERT, _, _VALUES = SQL["insert_job"].rstrip(";\n").partition("VALUES")
_ROW = re.sub(r"\?\d+", "?", _VALUES)
INSERT_JOBS = _INSERT.replace("INSERT", "INSERT OR ROLLBACK") + "VALUES" + ",".join([_ROW] * ROWS_AT_ONCE)
HELD, READY, DELAYED, TAKEN, DEAD, DONE, CANCELLED = range(-1, 6)
KEPT = (DONE, CANCELLED)  # for a while
_COUNTED = (
    "ready", "delayed", "taken", "dead", "done", "retried", "buried", "expired", "cancelled", "promoted", "held",
)  # fmt: skip
_PLACE = {name: place for place, name in enumerate(_COUNTED)}
_STATE_COUNTER = {HELD: "held", READY: "ready", DELAYED: "delayed", TAKEN: "taken", DEAD: "dead"}  # others: not counted


class QueueInfo(NamedTuple):
    """What is known of a queue without a look."""

    number: int
    name: str
    rules: Lanes | None = None
    shared: bytes | None = None  # the name under which it shares its limits
    unbalanced: bytes | None = None  # the name from which on its lanes may not be balanced yet


class Transaction:
    """One transaction, which may serve several callers. `now` is the same for all of them.

    Ids and counters are gathered, and written once by `finish`.
    """

    def __init__(self, cursor: apsw.Cursor, now: int, queues: dict[str | int, QueueInfo], writes: bool) -> None:
        self.now = now
        self.writes = writes
        self.touched: set[str] = set()  # queues that may have something new to take
        # By queue: the lanes that the step has to balance at its end, each with the rows that are to be inserted then.
        self.touched_lanes: dict[int, dict[bytes, list[tuple[Any, ...]]]] = {}
        self.new_queues: dict[str | int, QueueInfo] = {}  # by name and by number, as `queues`
        self._cursor = cursor
        self._queues = queues
        self._counts: dict[int, list[int]] = {}
        self._last_id = self._stored_last_id = -1
        self._reports: list[NewJob] = []  # of the step that is under way

    def rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._cursor.execute(SQL[name], values).fetchall()

    def row(self, name: str, *values: Any) -> tuple[Any, ...] | None:
        return self._cursor.execute(SQL[name], values).fetchone()

    def run(self, name: str, *values: Any) -> int:
        """Execute and give the number of changed rows."""
        self._cursor.execute(SQL[name], values)
        return self._cursor.connection.changes()

    def run_many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        self._cursor.executemany(SQL[name], rows)

    def insert_jobs(self, rows: Sequence[Sequence[Any]]) -> None:
        whole = len(rows) - len(rows) % ROWS_AT_ONCE
        starts = range(0, whole, ROWS_AT_ONCE)
        self._cursor.executemany(INSERT_JOBS, (tuple(chain(*rows[at : at + ROWS_AT_ONCE])) for at in starts))
        self.run_many("insert_job", rows[whole:])

    def next_id(self) -> int:
        if self._last_id < 0:
            found = self.row("last_id")
            assert found is not None
            self._last_id = self._stored_last_id = found[0]
        self._last_id += 1
        return self._last_id

    def number(self, queue: str) -> int | None:
        """The queue's number, or None if it was never used."""
        known = self.queue(queue)
        return None if known is None else known.number

    def make_number(self, queue: str) -> int:
        """The queue's number; it gets one if it has none."""
        number = self.number(queue)
        if number is None:
            found = self.row("new_queue", queue)
            assert found is not None
            number = int(found[0])
            self.note(QueueInfo(number, queue))
        return number

    def queue(self, key: str | int) -> QueueInfo | None:
        """The queue with this name or number, or None if there is none."""
        known = self.new_queues.get(key) or self._queues.get(key)
        if known is None:
            found = self.row("queue_of_name" if isinstance(key, str) else "queue_of_number", key)
            if found is not None:
                known = QueueInfo(found[0], found[1].decode("utf-8", "replace"), read_rules(found[2]), *found[3:])
                self.note(known)
        return known

    def note(self, queue: QueueInfo) -> None:
        """Remember a queue that is new, or has other rules."""
        self.new_queues[queue.number] = self.new_queues[queue.name] = queue

    def rules(self, queue: int) -> Lanes | None:
        known = self.queue(queue)
        return None if known is None else known.rules

    def is_shared(self, queue: int) -> bool:
        """Whether its limits hold for other queues as well."""
        known = self.queue(queue)
        return known is not None and known.shared is not None

    def group(self, queue: int) -> list[int]:
        """The queues that share their limits with this one, by name. It is one of them."""
        known = self.queue(queue)
        if known is None or known.shared is None:
            return [queue]
        return [number for (number,) in self.rows("queues_sharing", known.shared)]

    def unbalanced(self, queue: int) -> bytes | None:
        """The name from which on its lanes may not be balanced yet. None: all are."""
        known = self.queue(queue)
        return None if known is None else known.unbalanced

    def set_unbalanced(self, queue: int, lane: bytes | None) -> None:
        known = self.queue(queue)
        if known is not None and known.unbalanced != lane:
            self.run("set_unbalanced", queue, lane)
            self.note(known._replace(unbalanced=lane))

    def touch_queue(self, queue: int) -> None:
        """There may be something new to take."""
        known = self.queue(queue)
        if known is not None:
            self.touched.add(known.name)

    def lanes_of(self, queue: int) -> dict[bytes, list[tuple[Any, ...]]] | None:
        """Of `touched_lanes`. None: the queue has no rules for its lanes."""
        return None if self.rules(queue) is None else self.touched_lanes.setdefault(queue, {})

    def touch_lane(self, queue: int, lane: bytes | None) -> bool:
        """A job of this lane comes to the line, or has left it, or its place. Tells whether there are rules for it."""
        lanes = None if lane is None else self.lanes_of(queue)
        if lane is None or lanes is None:
            return False
        lanes.setdefault(lane, [])
        return True

    def come_in(self, queue: int, lane: bytes | None) -> int:
        """The state in which a job comes to the line: ready, or held until its lane is balanced."""
        return HELD if self.touch_lane(queue, lane) else READY

    def free(self, queue: int) -> int | None:
        """How many more jobs of the queue may run at once; None: there is no limit."""
        rules = self.rules(queue)
        if rules is None or rules.total is None:
            return None
        found = self.row("count_taken", queue)
        assert found is not None
        return max(0, rules.total - int(found[0]))

    def end_run(self, queue: int) -> None:
        """A taken job is taken no longer: where only so many may run at once, another may be takable now."""
        known = self.queue(queue)
        if known is not None and known.rules is not None and known.rules.total is not None:
            self.touched.add(known.name)

    def count(self, queue: int, counter: str, change: int) -> None:
        counts = self._counts.get(queue)
        if counts is None:
            counts = self._counts[queue] = [0] * len(_COUNTED)
        counts[_PLACE[counter]] += change

    def count_state(self, queue: int, state: int, change: int) -> None:
        if state not in KEPT:
            self.count(queue, _STATE_COUNTER[state], change)

    def count_move(self, queue: int, old: int, new: int, jobs: int = 1) -> None:
        if old != new:
            self.count_state(queue, old, -jobs)
            self.count_state(queue, new, jobs)

    def report(
        self, reporter: bytes | None, kind: ReportKind, id: int, attempts: int, body: bytes | None = None
    ) -> None:
        """Note what a flow is to be told in this step: see `add_reports`. `body` is the result, or the reason.

        `reporter` is the flow, a line feed and the job's key, which has none; None: the job does not report.
        """
        if reporter is not None:
            # Whatever a bad disk has made of the texts, they are keys.
            flow, _, key = reporter.decode("utf-8", "replace").rpartition("\n")
            report = Report.of(kind, id, attempts, self.now, clean(key)[:KEY], body)
            self._reports.append(report.job(clean(flow)[:KEY] or "?"))

    def take_reports(self) -> list[NewJob]:
        reports, self._reports = self._reports, []
        return reports

    def finish(self) -> None:
        """Write what was gathered: before the commit, and before the counters are read."""
        if self._last_id != self._stored_last_id:
            self.run("set_last_id", self._last_id)
            self._stored_last_id = self._last_id
        for queue, counts in self._counts.items():
            if any(counts):
                self.run("count", queue, *counts)
        self._counts.clear()
        self._touch_groups()

    def _touch_groups(self) -> None:
        """What is new in a queue may be what those wait for who share limits with it: a place, or the moment of one."""
        for name in tuple(self.touched):
            known = self.queue(name)
            if known is not None and known.shared is not None:
                others = (self.queue(number) for number in self.group(known.number))
                self.touched.update(other.name for other in others if other is not None)


def carried(ids: Iterable[int]) -> Any:
    """A list of ids as one value of a statement. It cannot be empty; no job has the id 0."""
    return apsw.carray(array("q", ids) or array("q", (0,)))


@lru_cache(maxsize=256)
def read_rules(text: bytes | None) -> Lanes | None:
    """The rules as they are in the file. What is there and cannot be read is no rule: it must stop no worker."""
    try:
        return None if text is None else msgspec.json.decode(text, type=Lanes)
    except msgspec.MsgspecError:
        return None
