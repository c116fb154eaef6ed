"""Sets records aside that cannot be read: dead, with the reason, and with what could be kept of them.

The tables are STRICT, so the engine itself keeps types apart and NULLs out. What is left: numbers that nobody wrote,
texts that are no text, states that do not exist, jobs of no queue, counters that are off.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, NamedTuple

from accoda.model import clean
from accoda.storage.sqlite.transaction import DEAD, DELAYED, DONE, FAR, READY, Transaction

LOST_COUNT = 1 << 30  # attempts of a job whose own cannot be read: above every token that was ever given for it
NO_QUEUE = "unreadable-queue"  # how a queue begins whose name is lost
_REASON = "unreadable record: "


class Raw(NamedTuple):
    """A record as it is in the file; texts as bytes. `crowd` is how many waiters it really has."""

    id: int
    queue: int
    state: int
    sort: float
    attempts: int
    waiters: int
    rank: float
    cost: int
    key: bytes | None
    created_at: int
    start_time: int
    prev_start_time: int | None
    keep_for: float
    worker: bytes | None
    taken_at: int | None
    ended_at: int | None
    reason: bytes | None
    fresh_at: int
    crashes: int
    crowd: int


def set_aside(tx: Transaction, ids: Iterable[int]) -> int:
    """Make these jobs dead; tell how many there were."""
    count = 0
    for id in ids:
        row = tx.row("raw_job", id)
        if row is None:
            continue
        raw = Raw(*row)
        flaws, values = mend(raw)
        new_id = id if 0 <= id < FAR else tx.next_id()
        reason = clean(_REASON + (", ".join(flaws) or "its queue has no name"))
        tx.run("set_aside", id, new_id, tx.now, reason, *values)
        if new_id != id:
            tx.run("move_waiters", id, new_id)
        _count(tx, raw)
        count += 1
    return count


def _count(tx: Transaction, raw: Raw) -> None:
    tx.count(raw.queue, "buried", 1)
    if READY <= raw.state <= DONE:
        tx.count_state(raw.queue, raw.state, -1)
        tx.count(raw.queue, "dead", 1)
    else:
        tx.recount(raw.queue)  # nobody knows where it was counted


def mend(raw: Raw) -> tuple[list[str], tuple[Any, ...]]:
    """What is unreadable about a record, and the values of `set_aside` that can be read: as they were, or nothing."""
    flaws: list[str] = []

    def whole(name: str, instead: int | None = 0) -> int | None:
        value = getattr(raw, name)
        if value is None or 0 <= value < FAR:
            return value  # type: ignore[no-any-return]
        flaws.append(f"{name} is {value}")
        return instead

    def number(name: str, low: float, high: float) -> float:
        value = getattr(raw, name)
        if isfinite(value) and low <= value <= high:
            return value  # type: ignore[no-any-return]
        flaws.append(f"{name} is {value}")
        return 0.0

    def text(name: str) -> str | None:
        value = getattr(raw, name)
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError:
            flaws.append(f"{name} is no text")
            return None

    whole("id")
    if not READY <= raw.state <= DONE:
        flaws.append(f"state is {raw.state}")
    if not isfinite(raw.sort) or (abs(raw.sort) > FAR and raw.state not in (READY, DEAD)):
        flaws.append(f"its moment is {raw.sort}")
    elif raw.state == DELAYED and raw.sort != raw.start_time:
        flaws.append(f"start_time is not {raw.sort:.0f}, by which it waits")
    whole("waiters")
    values = (
        whole("attempts", LOST_COUNT),
        raw.crowd,
        number("rank", float("-inf"), float("inf")),
        whole("cost"),
        text("key"),
        whole("created_at"),
        whole("start_time"),
        whole("prev_start_time", None),
        number("keep_for", 0, FAR / 1000),
        text("worker"),
        whole("taken_at", None),
        whole("fresh_at"),
        whole("crashes"),
    )
    whole("ended_at")
    text("reason")
    return flaws, values


def without_text(tx: Transaction, ids: Iterable[int]) -> list[int]:
    """Those of the ids whose record has a text that is none."""
    found = []
    for id in ids:
        row = tx.row("raw_job", id)
        if row is not None and any(" is no text" in flaw for flaw in mend(Raw(*row))[0]):
            found.append(id)
    return found


def gather_strays(tx: Transaction, left: int) -> int:
    """Set aside, up to so many, what no other call would come to; tell how many are left of the bound."""
    queue = -1 << 63
    while left > 0:
        found = tx.row("next_queue_of_jobs", queue)
        if found is None or found[0] is None:
            break
        queue = found[0]
        name = tx.name_of(queue)
        if name is None:  # nobody can ask for its jobs: it gets a name, so that people find them
            name = f"{NO_QUEUE}{queue}"
            tx.run("adopt_queue", queue, name)
            for (other,) in tx.rows("all_queues"):  # one of them has counted its jobs
                tx.recount(other)
        query = "not_dead" if name.startswith(NO_QUEUE) else "out_of_line"
        left -= set_aside(tx, [id for (id,) in tx.rows(query, queue, left)])
    return left
