"""The verbs of the hot path as steps inside a transaction: enqueue, take, settle, extend, and what is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from accoda.model import Bury, Done, Enqueued, Job, Lease, NewJob, Outcome, Refused, Retry, clean
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.sqlite.lanes import balance, is_balanced
from accoda.storage.sqlite.transaction import DEAD, DELAYED, DONE, HELD, KEPT, READY, TAKEN, Transaction, carried

# -- enqueue


def enqueue(tx: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    answers = _add(tx, jobs)
    balance(tx)
    return answers


def _add(tx: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Enqueue as a part of a step, which balances the lanes."""
    answers: list[Enqueued] = []
    rows: list[tuple[Any, ...]] = []
    created: dict[tuple[int, int], int] = {}  # how many, by queue and state
    now = tx.now
    name, queue, lanes = "", 0, None
    for job in jobs:
        if job.queue != name:
            name, queue = job.queue, tx.make_number(job.queue)
            lanes = tx.lanes_of(queue)
        start_time = now if job.delay is None and job.start_at is None else _start(now, job.delay, job.start_at)
        if job.key is not None:
            held = _key_holder(tx, queue, job.key)
            if held is not None:
                answers.append(_join(tx, queue, job, held, start_time))
                continue
        id = tx.next_id()
        rank = float(job.rank)
        if start_time > now:
            state, sort = DELAYED, float(start_time)
        else:
            state, sort = READY if job.lane is None or lanes is None else HELD, rank
        waiters = 0 if job.waiter is None else 1
        row = (
            id, queue, state, sort, rank, job.cost, job.key, waiters, now, start_time, job.keep_for, job.data,
            job.reports_to, job.lane,
        )  # fmt: skip
        new = rows
        if job.lane is not None and lanes is not None and state == HELD:
            # Inserted when its lane is balanced: most lanes have room, so it need not be held before.
            new = lanes.setdefault(job.lane.encode(), [])
        if job.key is None:
            new.append(row)
        else:  # at once, so that a second job of this call finds the key
            tx.run("insert_job", *row)
            if job.waiter is not None:
                tx.run("add_waiter", id, job.waiter)
        created[queue, state] = created.get((queue, state), 0) + 1
        if state != HELD:
            tx.touched.add(job.queue)
        answers.append(Enqueued(id, "created", waiters))
    for (queue, state), count in created.items():
        tx.count_state(queue, state, count)
    if rows:
        tx.insert_jobs(rows)
    return answers


def add_reports(tx: Transaction) -> None:
    """The end of a step: each flow is told of what became of its jobs, in the order in which it happened."""
    reports = tx.take_reports()
    if reports:
        _add(tx, reports)


def _start(now: int, delay: float | None, at: int | None) -> int:
    if at is not None:
        return max(now, at)
    return now + round(delay * 1000) if delay else now


def _place(tx: Transaction, queue: int, lane: bytes | None, rank: float, start_time: int) -> tuple[int, float]:
    """State and sort of a job that waits from now on."""
    if start_time > tx.now:
        return DELAYED, start_time
    return tx.come_in(queue, lane), rank


def _key_holder(tx: Transaction, queue: int, key: str) -> tuple[Any, ...] | None:
    held = tx.row("key_holder", queue, key)
    if held is not None and held[1] > READY and held[3] <= tx.now:
        apply_own_due(tx, held[0])  # its lease is over, or it is delayed no longer
        held = tx.row("key_holder", queue, key)
    return held


def _join(tx: Transaction, queue: int, job: NewJob, held: tuple[Any, ...], start_time: int) -> Enqueued:
    """The key of the new job is held by another."""
    id, old_state, waiters, _, lane = held
    if job.on_duplicate in ("keep", "rerank"):
        if job.on_duplicate == "rerank":
            rerank(tx, queue, id, old_state, lane, job.rank)
        return Enqueued(id, "kept", waiters)
    if job.waiter is not None:
        waiters += 1
        tx.run("add_waiter", id, job.waiter)
        tx.run("set_waiters", id, waiters)
    if job.on_duplicate == "attach":
        return Enqueued(id, "attached", waiters)
    rank = float(job.rank)
    tx.touch_lane(queue, lane)  # it leaves the line or its place, also if it is delayed now
    state, sort = _place(tx, queue, lane, rank, start_time)
    tx.run("replace_job", id, state, sort, rank, job.cost, job.keep_for, job.data, int(old_state == TAKEN), start_time)
    tx.count_move(queue, old_state, state)
    tx.touched.add(job.queue)
    return Enqueued(id, "replaced", waiters)


def rerank(tx: Transaction, queue: int, id: int, state: int, lane: bytes | None, rank: float) -> None:
    """A job that is ready or held leaves the line and comes in again."""
    new = tx.come_in(queue, lane) if state in (READY, HELD) else state
    tx.run("rerank_job", id, float(rank), new)
    tx.count_move(queue, state, new)


# -- what is due


def takable(tx: Transaction, queues: Sequence[str]) -> tuple[bool, int | None]:
    """For `wait`: is something takable in one of the queues, or to be done by a take; if not, at which moment?

    Changes nothing.
    """
    soonest: int | None = None
    for name in queues:
        queue = tx.number(name)
        found = None if queue is None else tx.row("queue_now", queue, tx.now)
        if queue is None or found is None:
            continue
        paused, paused_until, ready, *moments = found
        if not paused and (tx.unbalanced(queue) is not None or (ready and tx.free(queue) != 0)):
            return True, None
        for moment in (paused_until,) if paused else (*moments, *_moments_of_others(tx, queue)):
            if moment is not None and (soonest is None or moment < soonest):
                soonest = int(moment)
    return soonest is not None and soonest <= tx.now, soonest


def _moments_of_others(tx: Transaction, queue: int) -> list[float | None]:
    """The next moments of those that share limits with a queue: a lease may hold the place that a job of it waits for.

    Who sleeps until one of them hears of a nearer one: a transaction that makes it touches the whole group.
    """
    rows = [tx.row("queue_now", other, tx.now) for other in tx.group(queue) if other != queue]
    return [moment for row in rows if row is not None for moment in row[3:]]


def apply_due(tx: Transaction, queue: int, left: int = DUE_AT_ONCE) -> tuple[bool, int]:
    """Start delayed jobs and take back leases whose moment has come, up to `left` of them, the oldest first.

    Tells whether the queue is paused, and how many moves are left. The caller balances the lanes.
    """
    found = tx.row("queue_now", queue, tx.now)
    if found is None:  # deleted by hand
        return True, left
    paused, _, _, start, lease_end = found
    moments = [(moment, state) for moment, state in ((start, DELAYED), (lease_end, TAKEN)) if moment is not None]
    for moment, state in sorted(moments):
        if moment <= tx.now and left:
            jobs = [(id, lane) for id, _, lane in tx.rows("due", queue, state, tx.now, left)]
            _make_ready(tx, queue, state, jobs)
            left -= len(jobs)
    return bool(paused), left


def apply_due_of_group(tx: Transaction, queue: int) -> bool:
    """What is due in the queue and in all that share limits with it. Tells whether the queue is paused."""
    is_paused, left = True, DUE_AT_ONCE
    for each in tx.group(queue):
        paused, left = apply_due(tx, each, left)
        balance(tx)
        if each == queue:
            is_paused = paused
    return is_paused


def apply_own_due(tx: Transaction, id: int) -> None:
    """Apply what is due for one job that a call names, however much else is due. The caller balances the lanes."""
    found = tx.row("own_due", id, tx.now)
    if found is None:
        return
    queue, state, waiters, lane = found
    if state in KEPT:
        forget(tx, [(id, waiters)])
    else:
        _make_ready(tx, queue, state, [(id, lane)])


def _make_ready(tx: Transaction, queue: int, state: int, jobs: Sequence[tuple[int, bytes | None]]) -> None:
    """Jobs, each given by id and lane, come to the line."""
    held = sum(tx.touch_lane(queue, lane) for _, lane in jobs if lane is not None)
    ids = carried(id for id, _ in jobs)
    if state == TAKEN:
        tx.run("end_leases", ids, held > 0, tx.now)
        tx.count(queue, "expired", len(jobs))
    else:
        tx.run("start_delayed", ids, held > 0)
        tx.count(queue, "promoted", len(jobs))
    tx.count_state(queue, state, -len(jobs))
    tx.count(queue, "ready", len(jobs) - held)
    tx.count(queue, "held", held)


def forget_kept(tx: Transaction, queue: int, left: int = DUE_AT_ONCE, states: Sequence[int] = KEPT) -> int:
    """Delete up to `left` finished jobs that were kept until now; tell how many are left of that.

    Only people see them, so a take does not do this.
    """
    for state in states:
        over = tx.rows("due", queue, state, tx.now, left) if left else []
        forget(tx, [(id, waiters) for id, waiters, _ in over])
        left -= len(over)
    return left


def forget(tx: Transaction, jobs: Sequence[Sequence[int]]) -> None:
    """Delete jobs, each given by its id and its number of waiters."""
    if jobs:
        tx.run("delete_jobs", carried(id for id, _ in jobs))
        shared = [id for id, waiters in jobs if waiters]
        if shared:
            tx.run("delete_waiters", carried(shared))


# -- take, settle, extend


def take(tx: Transaction, name: str, count: int, lease: float, max_cost: int | None, worker: str) -> list[Job]:
    queue = tx.number(name)
    if queue is None:
        return []
    is_paused = apply_due_of_group(tx, queue)
    free = tx.free(queue)
    if free is not None:
        count = min(count, free)
    if is_paused or not is_balanced(tx, queue) or not count:
        return []
    jobs = _ready_jobs(tx, queue, name, count)
    if max_cost is not None:
        jobs = _affordable(jobs, max_cost)
    if jobs:
        # No other taker can have them: this transaction holds the file's write lock since before it looked.
        tx.run("lease_jobs", carried([job.id for job in jobs]), tx.now + round(lease * 1000), worker, tx.now)
        tx.count(queue, "ready", -len(jobs))
        tx.count(queue, "taken", len(jobs))
        if tx.is_shared(queue):  # the end of this lease is a moment for those who wait for the other queues
            tx.touched.add(name)
    return jobs


def _ready_jobs(tx: Transaction, queue: int, name: str, count: int) -> list[Job]:
    """The head of the line."""
    now = tx.now
    while True:
        try:
            return [
                Job(
                    id, name, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters,
                    Lease(name, id, attempts, now), tries, crashes, lane,
                )
                for (
                    id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, tries,
                    crashes, lane,
                ) in tx.rows("ready_jobs", queue, count)
            ]  # fmt: skip
        except UnicodeDecodeError:  # a damaged file: the next in line comes up
            _bury_unreadable(tx, queue, count)


def _bury_unreadable(tx: Transaction, queue: int, count: int) -> None:
    """Bury those at the head of the line whose key or lane is no text."""
    for id, key, lane, attempts, flow in tx.rows("ready_texts", queue, count):
        texts = {"key": key, "lane": lane}
        bad = [name for name, text in texts.items() if not _is_text(text)]
        if bad:
            reason = f"unreadable record: its {bad[0]} is {texts[bad[0]]!r:.600}"
            good = [None if name in bad or text is None else text.decode() for name, text in texts.items()]
            tx.run("bury_unreadable", id, tx.now, reason, *good)
            tx.report(flow, "dead", id, attempts, reason.encode())
            tx.count_move(queue, READY, DEAD)
            tx.count(queue, "buried", 1)
            tx.touch_lane(queue, lane)
    add_reports(tx)
    balance(tx)


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _affordable(jobs: list[Job], max_cost: int) -> list[Job]:
    for place, job in enumerate(jobs):
        max_cost -= job.cost
        if max_cost < 0:
            return jobs[:place]
    return jobs


def give_back_unseen(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Undo a take whose answer reached no caller."""
    for job in jobs:
        queue = tx.make_number(job.queue)
        lane = None if job.lane is None else job.lane.encode()
        state = HELD if lane is not None and tx.rules(queue) is not None else READY
        if tx.run("give_back_unseen", job.id, queue, job.attempts, job.lease.taken_at, state):
            tx.touch_lane(queue, lane)
            tx.count_move(queue, TAKEN, state)
            tx.touched.add(job.queue)
    balance(tx)


def settle(tx: Transaction, outcomes: Sequence[Outcome]) -> list[Refused]:
    refused: list[Refused] = []
    done: list[tuple[int, int, int]] = []  # queue, id and waiters of those that go at once
    follow_ups: list[NewJob] = []
    kept: set[int] = set()  # queues of jobs that are kept
    held = {row[0]: row for row in tx.rows("held_jobs", carried([o.lease.id for o in outcomes]), tx.now)}
    name, number, lanes = "", None, None
    for outcome in outcomes:
        lease = outcome.lease
        if lease.queue != name:
            name, number = lease.queue, tx.number(lease.queue)
            lanes = None
            if number is not None:
                tx.end_run(number)
                lanes = tx.lanes_of(number)
        # The token must be the current one. Dropped once used: a second outcome for the same lease is lost.
        row = held.get(lease.id)
        if row is None or row[2] != lease.attempts or row[5] != lease.taken_at or row[1] != number:
            refused.append(Refused(lease, "lost"))
            continue
        if isinstance(outcome, Done):
            if outcome.waiters is not None and row[3] > outcome.waiters:
                refused.append(Refused(lease, "grown"))
                continue
            if row[6] is not None:
                tx.report(row[6], "done", lease.id, lease.attempts, outcome.result)
            if row[4]:
                _keep(tx, row, outcome.result)
                kept.add(row[1])
            else:
                done.append((row[1], lease.id, row[3]))
        else:
            _put_back(tx, row, outcome)
        if row[7] is not None and lanes is not None:
            lanes.setdefault(row[7], [])
        del held[lease.id]
        follow_ups += outcome.then
    _finish(tx, done)
    if follow_ups:
        _add(tx, follow_ups)
    add_reports(tx)  # last, so that a flow finds what its member left for it before the report
    balance(tx)
    left = DUE_AT_ONCE
    for queue in kept:  # a queue that keeps one more result makes room for it
        left = forget_kept(tx, queue, left, (DONE,))
    return _tell_cancelled(tx, refused) if refused else refused


def _tell_cancelled(tx: Transaction, refused: Sequence[Refused]) -> list[Refused]:
    """The same, where those lost leases whose job was cancelled say so."""
    rows = tx.rows("cancelled_jobs", carried(each.lease.id for each in refused), tx.now)
    tokens = {row[0]: row for row in rows}

    def is_cancelled(lease: Lease) -> bool:
        return tokens.get(lease.id) == (lease.id, tx.number(lease.queue), lease.attempts, lease.taken_at)

    return [Refused(each.lease, "cancelled") if is_cancelled(each.lease) else each for each in refused]


def _finish(tx: Transaction, done: Sequence[tuple[int, int, int]]) -> None:
    """Done jobs go: all of them in one statement."""
    forget(tx, [(id, waiters) for _, id, waiters in done])
    for queue, count in Counter([queue for queue, _, _ in done]).items():
        tx.count(queue, "done", count)
        tx.count(queue, "taken", -count)


def _keep(tx: Transaction, row: tuple[Any, ...], result: bytes | None) -> None:
    """A done job stays for a while."""
    id, queue, _, _, keep_for, *_ = row
    tx.run("keep_done", id, tx.now + round(keep_for * 1000), result, tx.now)
    tx.count(queue, "done", 1)
    tx.count(queue, "taken", -1)


def _put_back(tx: Transaction, row: tuple[Any, ...], outcome: Retry | Bury) -> None:
    """A held job goes back to wait, or to the dead letters."""
    lease, now, queue = outcome.lease, tx.now, row[1]
    if isinstance(outcome, Bury):
        reason = clean(outcome.reason)
        tx.run("bury_job", lease.id, now, reason)
        tx.report(row[6], "dead", lease.id, lease.attempts, reason.encode())
        tx.count_move(queue, TAKEN, DEAD)
        tx.count(queue, "buried", 1)
        return
    start_time = _start(now, outcome.delay, outcome.at)
    state = DELAYED if start_time > now else tx.come_in(queue, row[7])
    rank = None if outcome.rank is None else float(outcome.rank)
    tx.run("retry_job", lease.id, state, start_time, clean(outcome.reason), int(outcome.counts), rank)
    tx.count_move(queue, TAKEN, state)
    tx.count(queue, "retried", 1)
    tx.touched.add(lease.queue)


def extend(tx: Transaction, leases: Sequence[Lease], lease: float) -> list[Refused]:
    until = tx.now + round(lease * 1000)
    refused = []
    for held in leases:
        if tx.run("extend_lease", held.id, tx.number(held.queue), held.attempts, tx.now, until, held.taken_at):
            tx.touched.add(held.queue)  # its end may have come nearer
        else:
            refused.append(Refused(held, "lost"))
    return _tell_cancelled(tx, refused) if refused else refused
