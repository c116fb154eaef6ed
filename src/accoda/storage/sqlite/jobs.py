"""The verbs of `Storage` as steps inside a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from accoda.model import (
    Bury,
    Done,
    Enqueued,
    Job,
    Lease,
    NewJob,
    Outcome,
    Rank,
    Refused,
    Retry,
    clean,
)
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.sqlite.aside import set_aside, without_text
from accoda.storage.sqlite.transaction import DELAYED, DONE, FAR, READY, TAKEN, Transaction, carried


def enqueue(tx: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    answers: list[Enqueued] = []
    rows: list[tuple[Any, ...]] = []
    created: dict[tuple[int, int], int] = {}  # how many, by queue and state
    now = tx.now
    for job in jobs:
        queue = tx.make_number(job.queue)
        start_time = now if job.delay is None and job.start_at is None else _start(job, now)
        state = READY if start_time <= now else DELAYED
        if job.key is not None:
            held = _key_holder(tx, queue, job.key)
            if held is not None:
                answers.append(_join(tx, job, held, state, start_time))
                continue
        id = tx.next_id()
        rank = float(job.rank)
        sort = rank if state == READY else start_time
        waiters = 0 if job.waiter is None else 1
        row = (id, queue, state, sort, rank, job.cost, job.key, waiters, now, start_time, job.keep_for, job.data)
        if job.key is None:
            rows.append(row)
        else:  # at once, so that a second job of this call finds the key
            tx.run("insert_job", *row)
            if job.waiter is not None:
                tx.run("add_waiter", id, job.waiter)
        created[queue, state] = created.get((queue, state), 0) + 1
        tx.touched.add(job.queue)
        answers.append(Enqueued(id, "created", waiters))
    for (queue, state), count in created.items():
        tx.count_state(queue, state, count)
    if rows:
        tx.run_many("insert_job", rows)
    return answers


def _start(job: NewJob, now: int) -> int:
    if job.delay is not None:
        return now + round(job.delay * 1000)
    return now if job.start_at is None else max(now, job.start_at)


def _key_holder(tx: Transaction, queue: int, key: str) -> tuple[Any, ...] | None:
    held = tx.row("key_holder", queue, key)
    if held is not None and held[1] == TAKEN:
        apply_own_due(tx, held[0])  # its lease may be over
        held = tx.row("key_holder", queue, key)
    if held is not None and not held[3]:
        set_aside(tx, [held[0]])  # who cannot be read holds nothing
        return None
    return held


def _join(tx: Transaction, job: NewJob, held: tuple[Any, ...], state: int, start_time: int) -> Enqueued:
    """The key is held: what becomes of the newcomer."""
    id, old_state, waiters, _ = held
    if job.on_duplicate == "keep":
        return Enqueued(id, "kept", waiters)
    if job.waiter is not None:
        waiters += 1
        tx.run("add_waiter", id, job.waiter)
        tx.run("set_waiters", id, waiters)
    if job.on_duplicate == "attach":
        return Enqueued(id, "attached", waiters)
    queue = tx.make_number(job.queue)
    rank = float(job.rank)
    sort = rank if state == READY else start_time
    tx.run("replace_job", id, state, sort, rank, job.cost, job.keep_for, job.data, int(old_state == TAKEN), start_time)
    tx.count_state(queue, old_state, -1)
    tx.count_state(queue, state, 1)
    tx.touched.add(job.queue)
    return Enqueued(id, "replaced", waiters)


def apply_due(tx: Transaction, queue: int, left: int = DUE_AT_ONCE) -> tuple[bool, int]:
    """Start what is delayed no longer and take back what was leased until now, up to `left` jobs.

    Tells whether the queue is paused, and how many moves are left.
    """
    found = tx.row("next_moments", queue, tx.now)
    if found is None:  # a queue that somebody else deleted
        return True, left
    start, lease_end, paused = found
    moments = [(moment, state) for moment, state in ((start, DELAYED), (lease_end, TAKEN)) if moment is not None]
    for moment, state in sorted(moments):
        if moment <= tx.now and left:
            left -= _apply(tx, queue, state, left)
    return bool(paused), left


def _apply(tx: Transaction, queue: int, state: int, most: int) -> int:
    """Make jobs of a state ready whose moment has come, the oldest first; tell how many were dealt with."""
    due = tx.rows("due", queue, state, tx.now, most)
    sound = [id for id, is_sound in due if is_sound]
    _make_ready(tx, queue, state, sound)
    if len(sound) < len(due):
        set_aside(tx, [id for id, is_sound in due if not is_sound])
    return len(due)


def _make_ready(tx: Transaction, queue: int, state: int, ids: Sequence[int]) -> None:
    if not ids:
        return
    if state == TAKEN:
        tx.run_on("end_leases", ids, tx.now)
        tx.count(queue, "expired", len(ids))
    else:
        tx.run_on("start_delayed", ids)
    tx.count_state(queue, state, -len(ids))
    tx.count(queue, "ready", len(ids))


def apply_own_due(tx: Transaction, id: int) -> None:
    """Apply what is due for one job that a call names, however much else is due."""
    found = tx.row("own_due", id, tx.now)
    if found is None:
        return
    queue, state, waiters, is_sound = found
    if not is_sound:
        set_aside(tx, [id])
    elif state == DONE:
        forget(tx, [(id, waiters)])
    else:
        _make_ready(tx, queue, state, [id])


def forget_kept(tx: Transaction, queue: int, left: int = DUE_AT_ONCE) -> int:
    """Delete up to `left` results that were kept until now; tell how many are left of that.

    Nobody but a person could tell, so this is not done by a take.
    """
    over = tx.rows("kept_until_now", queue, tx.now, left) if left else []
    forget(tx, over)
    return left - len(over)


def forget(tx: Transaction, jobs: Sequence[tuple[int, int]]) -> None:
    """Delete jobs, told by id and number of waiters."""
    if jobs:
        tx.run_on("delete_jobs", [id for id, _ in jobs])
        shared = [id for id, waiters in jobs if waiters]
        if shared:
            tx.run("delete_waiters_of_jobs", carried(shared))


def take(tx: Transaction, name: str, count: int, lease: float, max_cost: int | None, worker: str) -> list[Job]:
    queue = tx.number(name)
    if queue is None:
        return []
    paused, _ = apply_due(tx, queue)
    if paused or not count:
        return []
    jobs = _ready_jobs(tx, queue, name, count)
    if max_cost is not None:
        jobs = _affordable(jobs, max_cost)
    if jobs:
        # No other taker can have them: this transaction holds the file's write lock since before it looked.
        tx.run_on("lease_jobs", [job.id for job in jobs], tx.now + round(lease * 1000), worker, tx.now)
        tx.count(queue, "ready", -len(jobs))
        tx.count(queue, "taken", len(jobs))
    return jobs


def _ready_jobs(tx: Transaction, queue: int, name: str, count: int) -> list[Job]:
    """The head of the line. What cannot be read is set aside, up to a bound, and the next in line comes up."""
    left = DUE_AT_ONCE
    while True:
        try:
            rows = tx.rows("ready_jobs", queue, count)
        except UnicodeDecodeError:
            ids = [id for (id,) in tx.rows("ready_ids", queue, count)]
            left -= set_aside(tx, without_text(tx, ids))
            continue
        jobs = [
            Job(
                id, name, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters,
                Lease(name, id, attempts), fresh_at, crashes,
            )
            for (
                id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, fresh_at,
                crashes, is_sound,
            ) in rows
            if is_sound
        ]  # fmt: skip
        if len(jobs) == len(rows):
            return jobs
        left -= set_aside(tx, [row[0] for row in rows if not row[-1]])
        if left <= 0:
            return jobs


def _affordable(jobs: list[Job], max_cost: int) -> list[Job]:
    for place, job in enumerate(jobs):
        max_cost -= job.cost
        if max_cost < 0:
            return jobs[:place]
    return jobs


def give_back_unseen(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Undo a take whose answer nobody received."""
    for job in jobs:
        queue = tx.make_number(job.queue)
        if tx.run("give_back_unseen", job.id, queue, job.attempts):
            tx.count(queue, "taken", -1)
            tx.count(queue, "ready", 1)
            tx.touched.add(job.queue)


def settle(tx: Transaction, outcomes: Sequence[Outcome]) -> list[Refused]:
    if not outcomes or _settle_plain(tx, outcomes):
        return []
    refused: list[Refused] = []
    done: list[tuple[int, int]] = []  # queue and id of those that go at once
    follow_ups: list[NewJob] = []
    kept: set[int] = set()  # queues of jobs that are kept
    held = {row[0]: row for row in tx.rows_of("held_jobs", [o.lease.id for o in outcomes], tx.now)}
    name, number = "", None
    for outcome in outcomes:
        lease = outcome.lease
        if lease.queue != name:
            name, number = lease.queue, tx.number(lease.queue)
        # The token must be the current one. Dropped once used: a second outcome for the same lease is lost.
        row = held.pop(lease.id, None)
        if row is None or row[2] != lease.attempts or row[1] != number:
            if row is not None:
                held[lease.id] = row
            refused.append(Refused(lease, "lost"))
        elif isinstance(outcome, Done):
            if outcome.waiters is not None and row[3] > outcome.waiters:
                held[lease.id] = row
                refused.append(Refused(lease, "grown"))
                continue
            if outcome.then:
                follow_ups.extend(outcome.then)
            if row[3] or row[4]:
                kept |= _finish(tx, row, outcome.result)
            else:
                done.append((row[1], lease.id))
        else:
            _put_back(tx, row[1], outcome)
            if isinstance(outcome, Bury) and outcome.then:
                follow_ups.extend(outcome.then)
    if done:
        tx.run_on("delete_jobs", [id for _, id in done])
        for queue, count in Counter([queue for queue, _ in done]).items():
            tx.count(queue, "done", count)
            tx.count(queue, "taken", -count)
    if follow_ups:
        enqueue(tx, follow_ups)
    left = DUE_AT_ONCE
    for queue in kept:  # who keeps more makes room
        left = forget_kept(tx, queue, left)
    return refused


def _settle_plain(tx: Transaction, outcomes: Sequence[Outcome]) -> bool:
    """The usual batch in two statements: jobs of one queue, all done, nothing to follow, nobody waits, none is kept.

    False: it is not that, or not all leases are current, and nothing was changed.
    """
    first = outcomes[0].lease
    queue, attempts = first.queue, first.attempts
    ids = []
    for outcome in outcomes:
        lease = outcome.lease
        if (
            type(outcome) is not Done
            or outcome.then
            or outcome.waiters is not None
            or lease.attempts != attempts
            or lease.queue != queue
        ):
            return False
        ids.append(lease.id)
    number = tx.number(queue)
    if number is None or tx.rows_of("count_plain", ids, number, attempts, tx.now) != [(len(ids),)]:
        return False  # a lease is lost, or named twice
    tx.run_on("delete_jobs", ids)
    tx.count(number, "done", len(ids))
    tx.count(number, "taken", -len(ids))
    return True


def _finish(tx: Transaction, row: tuple[Any, ...], result: bytes | None) -> set[int]:
    """A done job that has waiters or is kept for a while. Gives its queue if it is kept."""
    id, queue, _, waiters, keep_for = row
    tx.count(queue, "done", 1)
    tx.count(queue, "taken", -1)
    if keep_for:
        tx.run("keep_done", id, tx.now + round(max(0, min(keep_for * 1000, FAR))), result, tx.now)
        return {queue}
    forget(tx, [(id, waiters)])
    return set()


def _put_back(tx: Transaction, queue: int, outcome: Retry | Bury) -> None:
    """A held job goes back to wait, or to the dead letters."""
    lease, now = outcome.lease, tx.now
    tx.count(queue, "taken", -1)
    if isinstance(outcome, Bury):
        tx.run("bury_job", lease.id, now, clean(outcome.reason))
        tx.count(queue, "dead", 1)
        tx.count(queue, "buried", 1)
        return
    start_time = now + round(outcome.delay * 1000) if outcome.at is None else max(now, outcome.at)
    state = READY if start_time <= now else DELAYED
    tx.run("retry_job", lease.id, state, start_time, clean(outcome.reason))
    tx.count_state(queue, state, 1)
    tx.count(queue, "retried", 1)
    tx.touched.add(lease.queue)


def extend(tx: Transaction, leases: Sequence[Lease], lease: float) -> list[Refused]:
    until = tx.now + round(lease * 1000)
    refused = []
    for held in leases:
        if tx.run("extend_lease", held.id, tx.number(held.queue), held.attempts, tx.now, until):
            tx.touched.add(held.queue)  # its end may have come nearer
        else:
            refused.append(Refused(held, "lost"))
    return refused


def rerank(tx: Transaction, ranks: Sequence[Rank]) -> int:
    for new in ranks:
        apply_own_due(tx, new.id)
    return sum(tx.run("rerank_job", new.id, tx.number(new.queue), float(new.rank), new.waiters) for new in ranks)


def waiters(tx: Transaction, lease: Lease) -> list[bytes]:
    rows = tx.rows("read_waiters", lease.id, tx.number(lease.queue), lease.attempts, tx.now)
    return [data for (data,) in rows]


def look(tx: Transaction, queues: Sequence[str]) -> tuple[bool, int | None]:
    """Is something takable in one of the queues; if not, when is the next moment to look again? Changes nothing."""
    soonest: int | None = None
    for name in queues:
        queue = tx.number(name)
        if queue is None:
            continue
        found = tx.row("look", queue, tx.now)
        if found is None:  # a queue that somebody else deleted
            continue
        paused, paused_until, ready, start, lease_end = found
        moments = [paused_until] if paused else [start, lease_end]
        if ready and not paused:
            return True, None
        for moment in moments:
            if moment is not None and (soonest is None or moment < soonest):
                soonest = int(max(0, min(moment, FAR)))
    return soonest is not None and soonest <= tx.now, soonest
