"""`peek` and `drop` as steps inside a transaction."""

from __future__ import annotations

from accoda.model import JobInfo, Peek
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.sqlite.aside import set_aside
from accoda.storage.sqlite.inspector import delete, describe, read
from accoda.storage.sqlite.jobs import apply_due, apply_own_due
from accoda.storage.sqlite.transaction import DELAYED, READY, TAKEN, Transaction

_LIVE = (READY, DELAYED, TAKEN)


def peek_only(tx: Transaction, name: str, key: str | None, after: int | None) -> Peek | None:
    """The answer of `peek` where that changes nothing. None: something is due, or cannot be read.

    The usual look takes no write lock, so it waits for no other process's commit. Whoever gets None asks `peek`, in a
    transaction of its own: one that began as a reader could be refused when it writes.
    """
    queue = tx.number(name)
    if queue is None:
        return Peek(tx.now)
    found = tx.row("next_moments", queue, tx.now)
    if found is None:  # a queue that somebody else deleted
        return Peek(tx.now)
    start, lease_end, paused = found
    if any(moment is not None and moment <= tx.now for moment in (start, lease_end)):
        return None
    id = _find(tx, queue, key, bool(paused))
    if id is None:
        return Peek(tx.now)
    info = read(tx, id)
    return None if info is None else _answer(tx, info, after)


def peek(tx: Transaction, name: str, key: str | None, after: int | None) -> Peek:
    queue = tx.number(name)
    if queue is None:
        return Peek(tx.now)
    paused, _ = apply_due(tx, queue)
    for _ in range(DUE_AT_ONCE):
        id = _find(tx, queue, key, paused)
        if id is None:
            break
        if key is not None:
            apply_own_due(tx, id)  # however much else is due
        info = describe(tx, id)
        if info is not None and info.state in ("ready", "delayed", "taken"):
            return _answer(tx, info, after)
        # It could not be read and was set aside: the next in line comes up, and a key is free.
    return Peek(tx.now)


def _find(tx: Transaction, queue: int, key: str | None, paused: bool) -> int | None:
    """The id of the job that holds the key or, without one, of the head of the line."""
    if key is None and paused:
        return None
    row = tx.row("ready_ids", queue, 1) if key is None else tx.row("key_holder", queue, key)
    return row[0] if row else None


def _answer(tx: Transaction, info: JobInfo, after: int | None) -> Peek:
    if after is None or info.waiters <= after:
        return Peek(tx.now, info)
    return Peek(tx.now, info, tuple(data for (data,) in tx.rows("waiters_after", info.id, after)))


def drop(tx: Transaction, name: str, id: int, waiters: int) -> bool:
    queue = tx.number(name)
    found = tx.row("state_of", id)
    if queue is None or found is None or found[0] != queue:
        return False
    apply_own_due(tx, id)
    found = tx.row("state_of", id)
    if found is None or found[1] not in _LIVE:
        return False
    if not found[3]:
        set_aside(tx, [id])  # nobody knows how many wait for it
        return False
    # Whoever attaches does so before this transaction began, and is counted, or after it, and finds the key free.
    return found[2] <= waiters and delete(tx, queue, found[1], [(id, found[2])]) == 1
