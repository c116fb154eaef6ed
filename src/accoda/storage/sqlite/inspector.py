"""The verbs of `Inspector` as steps inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.model import JobInfo, State
from accoda.storage.sqlite.aside import NO_QUEUE, set_aside
from accoda.storage.sqlite.jobs import apply_due, apply_own_due, forget, forget_kept
from accoda.storage.sqlite.transaction import DEAD, DELAYED, DONE, FAR, READY, TAKEN, Transaction

_NAMES: dict[int, State] = {READY: "ready", DELAYED: "delayed", TAKEN: "taken", DEAD: "dead", DONE: "done"}
_NUMBERS = {name: number for number, name in _NAMES.items()}
_BY_MOMENT = {DEAD: "dead_before", DONE: "done_before", TAKEN: "taken_before"}


def find(tx: Transaction, id: int) -> JobInfo | None:
    apply_own_due(tx, id)
    return describe(tx, id)


def describe(tx: Transaction, id: int) -> JobInfo | None:
    """All about a job. One that cannot be read is set aside, and then it can."""
    info = read(tx, id)
    if info is None and set_aside(tx, [id]):
        info = read(tx, id)
    return info


def read(tx: Transaction, id: int) -> JobInfo | None:
    """All about a job, unless there is none or it cannot be read."""
    try:
        row = tx.row("find_job", id)
    except UnicodeDecodeError:
        return None
    if row is None or not row[-1]:
        return None
    values = list(row[:-1])  # in the order of JobInfo's fields
    values[1] = tx.name_of(row[1]) or f"{NO_QUEUE}{row[1]}"
    values[2] = _NAMES[row[2]]
    values[15] = int(min(row[15], FAR)) if row[2] == TAKEN else None
    return JobInfo(*values)


def browse(tx: Transaction, name: str, state: State, after: int | None, limit: int) -> list[JobInfo]:
    queue = tx.number(name)
    if queue is None:
        return []
    _, left = apply_due(tx, queue)
    forget_kept(tx, queue, left)
    number = _NUMBERS[state]
    query = "browse_taken" if number == TAKEN else "browse_ids"
    ids = tx.rows(query, queue, number, -1 if after is None else after, limit)
    infos = [info for (id,) in ids if (info := describe(tx, id))]
    return [info for info in infos if info.state == state]


def remove(tx: Transaction, ids: Sequence[int]) -> int:
    removed = 0
    for id in ids:
        apply_own_due(tx, id)
        found = tx.row("state_of", id)
        if found is not None:
            removed += delete(tx, found[0], found[1], [(id, found[2])])
    return removed


def delete(tx: Transaction, queue: int, state: int, jobs: Sequence[tuple[int, int]]) -> int:
    """Delete jobs of one queue and state, told by id and number of waiters; tell how many."""
    forget(tx, jobs)
    if state in _NAMES:
        tx.count_state(queue, state, -len(jobs))
    else:
        tx.recount(queue)
    return len(jobs)


def revive(tx: Transaction, ids: Sequence[int]) -> int:
    revived = 0
    for id in ids:
        found = tx.row("state_of", id)
        if found is None or found[1] != DEAD:
            continue
        queue, _, _, is_sound, key_is_held = found
        if not is_sound:
            set_aside(tx, [id])  # it stays dead, and can be revived the next time
        if not is_sound or key_is_held:
            continue
        tx.run("revive_job", id, tx.now)
        tx.count(queue, "dead", -1)
        tx.count(queue, "ready", 1)
        tx.touched.add(tx.name_of(queue) or "")
        revived += 1
    return revived


def start_now(tx: Transaction, ids: Sequence[int]) -> int:
    started = 0
    for id in ids:
        apply_own_due(tx, id)
        found = tx.row("state_of", id)
        if found is None or found[1] != DELAYED:
            continue
        queue, _, _, is_sound, _ = found
        if not is_sound:
            set_aside(tx, [id])
            continue
        tx.run("start_now", id, tx.now)
        tx.count(queue, "delayed", -1)
        tx.count(queue, "ready", 1)
        tx.touched.add(tx.name_of(queue) or "")
        started += 1
    return started


def pause(tx: Transaction, name: str, until: int | None) -> None:
    tx.run("set_pause", tx.make_number(name), 1, until)
    tx.touched.add(name)  # the end of the pause is a new moment to wake at


def resume(tx: Transaction, name: str) -> None:
    queue = tx.number(name)
    if queue is not None:
        tx.run("set_pause", queue, 0, None)
        tx.touched.add(name)


def purge(tx: Transaction, name: str, state: State, before: int | None, limit: int | None) -> int:
    queue = tx.number(name)
    if queue is None:
        return 0
    _, left = apply_due(tx, queue)
    forget_kept(tx, queue, left)
    number = _NUMBERS[state]
    if before is None and limit is None:
        tx.run("purge_waiters", queue, number)
        purged = tx.run("purge", queue, number)
        tx.count_state(queue, number, -purged)
        return purged
    until = float("inf") if before is None else before - 1
    args = (queue, until, -1 if limit is None else limit)
    if number in _BY_MOMENT:
        return delete(tx, queue, number, tx.rows(_BY_MOMENT[number], *args))
    return delete(tx, queue, number, tx.rows("waiting_before", *args, number))
