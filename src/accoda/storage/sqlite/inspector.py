"""The verbs of `Inspector` as steps inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.model import JobInfo, State
from accoda.storage.sqlite.jobs import apply_due, forget_kept
from accoda.storage.sqlite.transaction import DEAD, DELAYED, DONE, READY, TAKEN, Transaction

_NAMES: dict[int, State] = {READY: "ready", DELAYED: "delayed", TAKEN: "taken", DEAD: "dead", DONE: "done"}
_NUMBERS = {name: number for number, name in _NAMES.items()}


def find(tx: Transaction, id: int) -> JobInfo | None:
    _apply_due_of(tx, id)
    return _describe(tx, id)


def _apply_due_of(tx: Transaction, id: int) -> None:
    found = tx.row("queue_of", id)
    if found is not None:
        _apply_all_due(tx, found[0])


def _apply_all_due(tx: Transaction, queue: int) -> None:
    apply_due(tx, queue)
    forget_kept(tx, queue)


def _describe(tx: Transaction, id: int) -> JobInfo | None:
    row = tx.row("find_job", id)
    if row is None:
        return None
    values = list(row)  # in the order of JobInfo's fields
    values[2] = _NAMES[row[2]]
    values[15] = int(row[15]) if row[2] == TAKEN else None
    return JobInfo(*values)


def browse(tx: Transaction, name: str, state: State, after: int | None, limit: int) -> list[JobInfo]:
    queue = tx.number(name)
    if queue is None:
        return []
    _apply_all_due(tx, queue)
    number = _NUMBERS[state]
    query = "browse_taken" if number == TAKEN else "browse_ids"
    ids = tx.rows(query, queue, number, -1 if after is None else after, limit)
    return [info for (id,) in ids if (info := _describe(tx, id))]


def remove(tx: Transaction, ids: Sequence[int]) -> int:
    removed = 0
    for id in ids:
        _apply_due_of(tx, id)
        found = tx.row("state_of", id)
        if found is not None:
            queue, state, waiters, _ = found
            tx.run("delete_job", id)
            if waiters:
                tx.run("delete_waiters_of", id)
            tx.count_state(queue, state, -1)
            removed += 1
    return removed


def revive(tx: Transaction, ids: Sequence[int]) -> int:
    revived = 0
    for id in ids:
        found = tx.row("state_of", id)
        if found is None or found[1] != DEAD:
            continue
        queue, _, _, key = found
        if key is not None and tx.row("key_holder", queue, key) is not None:
            continue
        tx.run("revive_job", id, tx.now)
        tx.count(queue, "dead", -1)
        tx.count(queue, "ready", 1)
        name = tx.row("queue_name", queue)
        assert name is not None
        tx.touched.add(name[0])
        revived += 1
    return revived


def pause(tx: Transaction, name: str, until: int | None) -> None:
    tx.run("set_pause", tx.make_number(name), 1, until)
    tx.touched.add(name)  # the end of the pause is a new moment to wake at


def resume(tx: Transaction, name: str) -> None:
    queue = tx.number(name)
    if queue is not None:
        tx.run("set_pause", queue, 0, None)
        tx.touched.add(name)


def purge(tx: Transaction, name: str, state: State) -> int:
    queue = tx.number(name)
    if queue is None:
        return 0
    _apply_all_due(tx, queue)
    number = _NUMBERS[state]
    tx.run("purge_waiters", queue, number)
    purged = tx.run("purge", queue, number)
    tx.count_state(queue, number, -purged)
    return purged
