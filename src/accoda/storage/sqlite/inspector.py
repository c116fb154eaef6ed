"""The verbs for people, demand and flows, and the statistics, as steps inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from math import inf
from typing import Any

from accoda.model import (
    AHEAD_AT_MOST,
    CANCELLED_FOR,
    ById,
    ByKey,
    Cancel,
    Change,
    Cursor,
    Head,
    JobInfo,
    LaneInfo,
    LanesInfo,
    Look,
    NotCrashed,
    Order,
    QueueStats,
    Remove,
    Rerank,
    Revive,
    StartNow,
    State,
    Stats,
    Target,
)
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.sqlite.jobs import add_reports, apply_due, apply_own_due, forget, forget_kept, rerank
from accoda.storage.sqlite.lanes import balance
from accoda.storage.sqlite.transaction import DEAD, DELAYED, HELD, KEPT, READY, TAKEN, Transaction, carried

_STATES: tuple[State, ...] = ("held", "ready", "delayed", "taken", "dead", "done", "cancelled")  # in order of numbers
_LIVE = (HELD, READY, DELAYED, TAKEN)
_LAST_ID = (1 << 63) - 1
_PURGED_AT_ONCE = 10_000  # jobs whose ids are in memory at the same time


def stats(tx: Transaction) -> Stats:
    left = DUE_AT_ONCE
    for (queue,) in tx.rows("all_queues"):
        _, left = apply_due(tx, queue, left)
        left = forget_kept(tx, queue, left)
    balance(tx)
    tx.finish()
    return Stats({_text(name): _stats_of(tx.now, counts) for name, *counts in tx.rows("stats", tx.now)})


def _stats_of(now: int, row: Sequence[Any]) -> QueueStats:
    ready, taken, delayed, dead, done, retried, buried, expired, cancelled, promoted, held, paused, until, oldest = row
    return QueueStats(
        total=ready + held + taken + delayed + dead,
        ready=ready,
        held=held,
        taken=taken,
        delayed=delayed,
        dead=dead,
        oldest_age=0.0 if oldest is None else max(0, now - oldest) / 1000,
        done=done,
        retried=retried,
        buried=buried,
        expired=expired,
        cancelled=cancelled,
        promoted=promoted,
        paused=bool(paused),
        paused_until=until if paused else None,
    )


def _text(value: bytes) -> str:
    """A text of the file, even of a damaged one."""
    return value.decode("utf-8", "replace")


# -- look


def look(tx: Transaction, target: Target, waiters_after: int | None, ahead: bool) -> Look | None:
    """None: something is due, and this transaction only reads.

    Most looks find nothing due and take no write lock, so they wait for no other process's commit.
    """
    queue = _queue_of(tx, target)
    now = None if queue is None else tx.row("queue_now", queue, tx.now)
    if queue is None or now is None:
        return Look(tx.now)
    if any(moment is not None and moment <= tx.now for moment in now[3:]):
        if not tx.writes:
            return None
        apply_due(tx, queue)
    id = _id_of(tx, target, queue, is_paused=now[0])
    if id is not None and tx.row("own_due", id, tx.now):
        if not tx.writes:
            return None
        apply_own_due(tx, id)  # however much else is due
    balance(tx)
    infos = [] if id is None else _describe(tx, [id])
    return _answer(tx, queue, infos[0], waiters_after, ahead) if infos else Look(tx.now)


def _queue_of(tx: Transaction, target: Target) -> int | None:
    if not isinstance(target, ById):
        return tx.number(target.queue)
    found = tx.row("state_of", target.id)
    return found[0] if found else None


def _id_of(tx: Transaction, target: Target, queue: int, *, is_paused: bool) -> int | None:
    match target:
        case ById(id):
            return id
        case ByKey(_, key):
            row = tx.row("key_holder", queue, key)
        case Head():
            row = None if is_paused or tx.free(queue) == 0 else tx.row("ready_texts", queue, 1)
    return row[0] if row else None


def _answer(tx: Transaction, queue: int, info: JobInfo, waiters_after: int | None, ahead: bool) -> Look:
    waiters: tuple[bytes, ...] = ()
    if waiters_after is not None and info.waiters > waiters_after:
        waiters = tuple(data for (data,) in tx.rows("waiters_after", info.id, waiters_after))
    if not ahead or info.state not in ("ready", "delayed"):
        return Look(tx.now, info, waiters)
    place = info.rank if info.turn is None else info.turn
    before = [id for (id,) in tx.rows("line_before", queue, place, info.id, AHEAD_AT_MOST + 1)]
    newer = sum(id > info.id for id in before[:AHEAD_AT_MOST])
    return Look(tx.now, info, waiters, len(before), newer)


def _describe(tx: Transaction, ids: Sequence[int]) -> list[JobInfo]:
    """All about these jobs, in this order."""
    infos = {}
    for row in tx.rows("describe_jobs", carried(ids)):
        values = list(row)  # in the order of JobInfo's fields
        for place in (1, 6, 13, 17, 21):  # queue, key, worker, reason, lane
            values[place] = None if row[place] is None else _text(row[place])
        values[2] = _state(row[2])
        values[15] = int(row[15]) if row[2] == TAKEN else None
        values.append(row[15] if row[2] == READY and row[15] != row[4] else None)  # the turn
        infos[row[0]] = JobInfo(*values)
    return [infos[id] for id in ids if id in infos]


def _state(number: int) -> State:
    return _STATES[number - HELD]


def _number(state: State) -> int:
    return _STATES.index(state) + HELD


# -- change


def change(tx: Transaction, changes: Sequence[Change]) -> int:
    applied = sum(_change(tx, each) for each in changes)
    add_reports(tx)
    balance(tx)
    return applied


def _change(tx: Transaction, change: Change) -> bool:
    """Whether the change was applied."""
    apply_own_due(tx, change.id)
    balance(tx)
    found = tx.row("state_of", change.id)
    if found is None:
        return False
    queue, raw_name, state, waiters, _, attempts, flow, lane, key_is_held = found
    name = _text(raw_name)
    if change.queue is not None and change.queue != name:
        return False
    # A waiter that attached before this transaction began is counted; one that comes after it finds the key free.
    if change.waiters is not None and waiters > change.waiters:
        return False
    match change:
        case Remove() if change.waiters is None or state in _LIVE:
            _remove(tx, queue, state, [(change.id, waiters, attempts, flow, lane)])
        case Cancel() if state in _LIVE:
            _cancel(tx, change.id, found)
        case Revive() if state == DEAD and not key_is_held:
            _come_in(tx, "revive_job", change.id, queue, state, lane)
            tx.report(flow, "revived", change.id, attempts + 1)
        case StartNow() if state == DELAYED:
            _come_in(tx, "start_now", change.id, queue, state, lane)
        case NotCrashed() if state in _LIVE:
            return bool(tx.run("not_crashed", change.id))
        case Rerank() if state in (HELD, READY, DELAYED):
            rerank(tx, queue, change.id, state, lane, change.rank)
        case _:
            return False
    if isinstance(change, (Revive, StartNow)):
        tx.touched.add(name)
    balance(tx)
    return True


def _come_in(tx: Transaction, statement: str, id: int, queue: int, old_state: int, lane: bytes | None) -> None:
    state = tx.come_in(queue, lane)
    tx.run(statement, id, tx.now, state)
    tx.count_move(queue, old_state, state)


def _cancel(tx: Transaction, id: int, found: tuple[Any, ...]) -> None:
    """The job ends. If it runs, it stays long enough for its worker to be told."""
    queue, _, state, waiters, keep_for, attempts, flow, lane, _ = found
    tx.count(queue, "cancelled", 1)
    tx.report(flow, "cancelled", id, attempts)
    if state == TAKEN:
        keep_for = max(keep_for, CANCELLED_FOR)
        tx.end_run(queue)
    tx.touch_lane(queue, lane)
    tx.count_state(queue, state, -1)
    if keep_for:
        tx.run("cancel_job", id, tx.now + round(keep_for * 1000), keep_for, tx.now)
    else:
        forget(tx, [(id, waiters)])


def _remove(tx: Transaction, queue: int, state: int, jobs: Sequence[tuple[Any, ...]]) -> None:
    """Delete jobs of one queue and state, each given by id, number of waiters, attempts, flow if it reports, lane."""
    forget(tx, [(id, waiters) for id, waiters, *_ in jobs])
    tx.count_state(queue, state, -len(jobs))
    if state == TAKEN:
        tx.end_run(queue)
    for id, _, attempts, flow, lane in jobs:
        if state in _LIVE:
            tx.touch_lane(queue, lane)
        if flow is not None and state not in KEPT:  # else its end was reported
            tx.report(flow, "removed", id, attempts)


# -- browse, pause, purge


def browse(tx: Transaction, name: str, state: State, order: Order, after: Cursor | None, limit: int) -> list[JobInfo]:
    queue = tx.number(name)
    if queue is None:
        return []
    _, left = apply_due(tx, queue)
    forget_kept(tx, queue, left)
    balance(tx)
    number = _number(state)
    if order == "id":
        rows = tx.rows(_by_id(number), queue, number, -1 if after is None else after.id, limit)
    elif number in _LIVE:
        rows = tx.rows("browse_line", queue, number, *((-inf, -1) if after is None else (after.sort, after.id)), limit)
    else:
        place = (inf, _LAST_ID) if after is None else (after.sort, after.id)
        rows = tx.rows("browse_ended", queue, number, *place, limit)
    return _describe(tx, [row[0] for row in rows])


def _by_id(state: int) -> str:
    return "taken_by_id" if state == TAKEN else "by_id"


def pause(tx: Transaction, name: str, until: int | None) -> None:
    paused = until is None or until > tx.now
    queue = tx.make_number(name) if paused else tx.number(name)  # to resume an unknown queue does not make it
    if queue is not None:
        tx.run("set_pause", queue, int(paused), until if paused else None)
        tx.touched.add(name)  # the end of the pause is a new moment to wake at


def purge(tx: Transaction, name: str, state: State, before: int | None, limit: int | None) -> int:
    queue = tx.number(name)
    if queue is None:
        return 0
    _, left = apply_due(tx, queue)
    forget_kept(tx, queue, left)
    number, purged = _number(state), 0
    while limit is None or purged < limit:
        most = _PURGED_AT_ONCE if limit is None else min(_PURGED_AT_ONCE, limit - purged)
        jobs = _old_jobs(tx, queue, number, before, most)
        _remove(tx, queue, number, jobs)
        purged += len(jobs)
        if len(jobs) < most:
            break
    add_reports(tx)
    balance(tx)
    return purged


def _old_jobs(tx: Transaction, queue: int, state: int, before: int | None, most: int) -> list[Any]:
    """The first jobs in a state, of those that are there since before a moment, as `_remove` needs them."""
    if state not in _LIVE:
        return tx.rows("ended_before", queue, state, inf if before is None else before, most)
    # Ids grow with time: the first by id are the oldest, so no others need be looked at.
    rows = tx.rows(_by_id(state), queue, state, -1, most)
    return [row[:-1] for row in rows if before is None or row[-1] < before]


# -- lanes


def lanes(tx: Transaction, name: str, limit: int) -> LanesInfo:
    queue = tx.queue(name)
    if queue is None:
        return LanesInfo(None, (), 0)
    if not limit:
        return LanesInfo(queue.rules, (), 0)
    apply_due(tx, queue.number)
    balance(tx)
    found = [LaneInfo(_text(lane), *counts) for lane, *counts in tx.rows("lane_counts", queue.number)]
    top = nsmallest(limit, found, key=lambda each: (-each.ready - each.held, each.lane))
    return LanesInfo(queue.rules, tuple(top), len(found))
