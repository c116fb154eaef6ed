"""What the verbs see of a transaction: statements, the moment, ids, queue numbers, and counters written once."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from accoda.limits import NAME
from accoda.storage.scripts import load_queries

SQL = load_queries("accoda.storage.sqlite", "queries.sql")
_SOUND = SQL.pop("sound").partition("\n(")[2]  # without its comment
SQL = {name: text.replace("{sound}", "(" + _SOUND) for name, text in SQL.items()}
_LISTED = "id IN carray(?1)"
RANGE = " of a range"  # what the statements for ids without a gap are called


def _of_a_range(text: str) -> str:
    last = max(map(int, re.findall(r"\?(\d+)", text))) + 1
    return text.replace(_LISTED, f"id BETWEEN ?1 AND ?{last}")


SQL |= {name + RANGE: _of_a_range(text) for name, text in SQL.items() if _LISTED in text}

FAR = 1 << 54  # beyond every moment and every number that is ever written
READY, DELAYED, TAKEN, DEAD, DONE = range(5)
_COUNTED = ("ready", "delayed", "taken", "dead", "done", "retried", "buried", "expired")
_PLACE = {name: place for place, name in enumerate(_COUNTED)}
_STATE_COUNTER = ("ready", "delayed", "taken", "dead")  # by state; `done` counts events, not jobs


class Transaction:
    """One transaction, which may serve several callers. `now` is the same for all of them."""

    def __init__(self, cursor: apsw.Cursor, now: int, numbers: dict[str, int]) -> None:
        self.now = now
        self.touched: set[str] = set()  # queues that may have something new to take
        self.new_numbers: dict[str, int] = {}
        self._cursor = cursor
        self._numbers = numbers
        self._counts: dict[int, list[int]] = {}
        self._miscounted: set[int] = set()
        self._last_id = self._stored_last_id = -1

    def rows(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._cursor.execute(SQL[name], values).fetchall()

    def row(self, name: str, *values: Any) -> tuple[Any, ...] | None:
        return self._cursor.execute(SQL[name], values).fetchone()

    def run(self, name: str, *values: Any) -> int:
        """Execute and give the number of changed rows."""
        self._cursor.execute(SQL[name], values)
        return self._cursor.connection.changes()

    def rows_of(self, name: str, ids: Sequence[int], *values: Any) -> list[tuple[Any, ...]]:
        """Of jobs with these ids, the first value of the statement."""
        return self._cursor.execute(*_statement(name, ids, values)).fetchall()

    def run_on(self, name: str, ids: Sequence[int], *values: Any) -> int:
        self._cursor.execute(*_statement(name, ids, values))
        return self._cursor.connection.changes()

    def run_many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        self._cursor.executemany(SQL[name], rows)

    def next_id(self) -> int:
        if self._last_id < 0:
            found = self.row("last_id")
            assert found is not None
            self._last_id = self._stored_last_id = found[0]
        self._last_id += 1
        return self._last_id

    def number(self, queue: str) -> int | None:
        """The queue's number, or None if it was never used."""
        number = self._numbers.get(queue) or self.new_numbers.get(queue)
        if number is None:
            found = self.row("queue_number", queue)
            if found is not None:
                number = self.new_numbers[queue] = found[0]
        return number

    def make_number(self, queue: str) -> int:
        """The queue's number; it gets one if it has none."""
        number = self.number(queue)
        if number is None:
            found = self.row("new_queue", queue)
            assert found is not None
            number = self.new_numbers[queue] = int(found[0])
        return number

    def count(self, queue: int, counter: str, change: int) -> None:
        counts = self._counts.get(queue)
        if counts is None:
            counts = self._counts[queue] = [0] * len(_COUNTED)
        counts[_PLACE[counter]] += change

    def count_state(self, queue: int, state: int, change: int) -> None:
        if state != DONE:
            self.count(queue, _STATE_COUNTER[state], change)

    def name_of(self, queue: int) -> str | None:
        """The queue's name, or None if it has none that can be read."""
        found = self.row("queue_name", queue)
        try:
            name = found[0].decode() if found else ""
        except UnicodeDecodeError:
            return None
        return name if NAME.match(name) else None

    def recount(self, queue: int) -> None:
        """Count the jobs of a queue before the end: its counters are off."""
        self._miscounted.add(queue)

    def finish(self) -> None:
        """Write what was gathered: before the commit, and before the counters are read."""
        if self._last_id != self._stored_last_id:
            self.run("set_last_id", self._last_id)
            self._stored_last_id = self._last_id
        for queue, counts in self._counts.items():
            if any(counts):
                try:
                    self.run("count", queue, *counts)
                except apsw.ConstraintError:  # beyond what a counter can hold: somebody else wrote it
                    self._miscounted.add(queue)
        self._counts.clear()
        for queue in self._miscounted:
            self.run("recount", queue)
        self._miscounted.clear()


def _statement(name: str, ids: Sequence[int], values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """A statement for jobs, and its values. Ids without a gap, as the jobs of one call have them, are a range: SQLite
    goes over it once, where a list costs a descent from the root for each, and for a change two."""
    first = ids[0]
    if list(ids) == list(range(first, first + len(ids))):
        return SQL[name + RANGE], (first, *values, first + len(ids) - 1)
    return SQL[name], (carried(ids), *values)


def carried(ids: Sequence[int]) -> Any:
    """A list of ids as one value of a statement."""
    return apsw.carray(array("q", ids))
