"""Jobs in this process's memory: for tests, for trying things out, and for work that may be lost.

Everything happens under one lock, on the queues of `accoda.storage.memory.queue`. `take`, `settle` and `enqueue` cost
O(log n) for each job; `browse`, `purge` and `look(ahead=True)`, which people call, walk over the jobs of one state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Literal

from accoda.clock import Clock, SystemClock
from accoda.errors import StorageClosed
from accoda.model import (
    CANCELLED_FOR,
    ENDED,
    REPORTS,
    ById,
    ByKey,
    Cancel,
    Change,
    Cursor,
    Document,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lanes,
    LanesInfo,
    Lease,
    Look,
    NewJob,
    NotCrashed,
    Order,
    Outcome,
    Refused,
    Remove,
    Report,
    ReportKind,
    Rerank,
    Retry,
    Revive,
    StartNow,
    State,
    Stats,
    Target,
    Why,
    check_document_name,
    clean,
)
from accoda.storage import checks
from accoda.storage.common.closing import Closing
from accoda.storage.common.wakeups import WakeUps
from accoda.storage.memory.describing import describe
from accoda.storage.memory.documents import Documents
from accoda.storage.memory.queue import LaneGroup, MemoryQueue, Record, start_of
from accoda.storage.protocol import DUE_AT_ONCE


class MemoryStorage(Closing):
    """A `Store` in memory. Safe to share between threads and event loops of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._wakeups = WakeUps()
        self._jobs: dict[int, Record] = {}
        self._queues: dict[str, MemoryQueue] = {}
        self._documents = Documents()
        self._last_id = 0
        self._reports: list[NewJob] = []  # of the step that is under way
        self._closed = False

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            self._jobs.clear()
            for queue in self._queues.values():
                queue.clear()
        self._wakeups.wake()

    # -- producers and workers

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        checks.check_jobs(jobs)
        with self._lock:
            now = self._now()
            answers = [self._add(job, now) for job in jobs]
            self._balance(job.queue for job in jobs)
        if self._wakeups.awaited:  # a `wait` that begins only now looks first, and finds them
            self._wake(job.queue for job in jobs)
        return answers

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        checks.check_take(queue, count, lease, max_cost)
        with self._lock:
            now = self._now()
            found = self._current_group(queue, now)
            if found is None or found.is_paused(now):
                return []
            return found.lease(found.pick(count, max_cost), now, now + round(lease * 1000), clean(worker))

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        checks.check_outcomes(outcomes)
        refused: list[Refused] = []
        then: list[NewJob] = []
        touched: dict[str, None] = {}  # not a set: those who wait are woken in the same order in every run
        with self._lock:
            now = self._now()
            for outcome in outcomes:
                refusal = self._settle(outcome, now)
                if refusal is not None:
                    refused.append(refusal)
                    continue
                touched[outcome.lease.queue] = None
                then.extend(outcome.then)
            then += self._take_reports()  # last, so that a flow finds what its member left for it before its report
            for job in then:
                self._add(job, now)
            touched |= dict.fromkeys(job.queue for job in then)
            self._balance(touched)
        self._wake(touched)
        return refused

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        checks.check_leases(leases, lease)
        refused = []
        with self._lock:
            now = self._now()
            until = now + round(lease * 1000)
            for held in leases:
                record = self._leased(held, now)
                if record is None:
                    refused.append(Refused(held, self._why_lost(held, now)))
                else:
                    record.due = until
                    record.queue.due.watch(until, record.id)
        self._wake(held.queue for held in leases)  # an end may have come nearer
        return refused

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        checks.check_wait(queues, timeout)

        async def look() -> tuple[bool, int | None]:
            with self._lock:
                now = self._now()
                found = [queue for name in queues if (queue := self._current_group(name, now))]
                moments = [queue.next_moment(now) for queue in found]
            soonest = min((moment for moment in moments if moment is not None), default=None)
            return soonest is not None and soonest <= now, soonest

        return await self._wakeups.wait(self._clock, queues, timeout, look)

    async def stats(self) -> Stats:
        with self._lock:
            now = self._now()
            left = DUE_AT_ONCE
            for queue in self._queues.values():
                left -= self._apply_due(queue, now, left)
            return Stats({name: queue.stats(now) for name, queue in self._queues.items()})

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        with self._lock:
            return self._documents.read(name, self._now())

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        checks.check_write(name, value, version, ttl)
        with self._lock:
            return self._documents.write(name, value, version, ttl, self._now())

    async def documents(self, prefix: str) -> list[Document]:
        checks.check_prefix(prefix)
        with self._lock:
            return self._documents.starting_with(prefix, self._now())

    # -- for people

    async def look(self, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> Look:
        checks.check_look(target, waiters_after)
        with self._lock:
            now = self._now()
            record = self._find(target, now)
            if record is None:
                return Look(now)
            waiters = () if waiters_after is None else tuple((record.waiters or ())[waiters_after:])
            if not ahead or record.state not in ("ready", "delayed"):
                return Look(now, describe(record), waiters)
            return Look(now, describe(record), waiters, *record.queue.ahead_of(record))

    async def change(self, changes: Sequence[Change]) -> int:
        checks.check_changes(changes)
        with self._lock:
            now = self._now()
            changed = [queue for change in changes if (queue := self._change(change, now))]
            reports = self._take_reports()
            for report in reports:
                self._add(report, now)
            self._balance([REPORTS] if reports else [])
        self._wake([*changed, *(report.queue for report in reports)])
        return len(changed)

    async def browse(
        self, queue: str, state: State, *, order: Order = "line", after: Cursor | None = None, limit: int = 100
    ) -> list[JobInfo]:
        checks.check_browse(queue, state, order, after, limit)
        with self._lock:
            found = self._current_queue(queue, self._now())
            return [describe(record) for record in found.page(state, order, after, limit)] if found else []

    async def pause(self, queue: str, until: int | None) -> None:
        checks.check_pause(queue, until)
        with self._lock:
            now = self._now()
            if queue in self._queues or until is None or until > now:  # to resume an unknown queue does not make it
                self._queue(queue).pause(until, now)
        self._wakeups.wake({queue})  # the end of the pause is a new moment to wake at

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        checks.check_purge(queue, state, before, limit)
        with self._lock:
            now = self._now()
            found = self._current_queue(queue, now)
            ids = found.purgeable(state, before, limit) if found else []
            for id in ids:
                self._remove(self._jobs[id], now)
            reports = self._take_reports()
            for report in reports:
                self._add(report, now)
            self._balance([queue, REPORTS] if reports else [queue])
        self._wake([queue, REPORTS] if reports else [queue])  # a lane may have let a held job in
        return len(ids)

    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        checks.check_set_lanes(queue, rules)
        with self._lock:
            now = self._now()
            touched = [queue]
            if queue in self._queues or rules is not None:
                touched += self._set_lanes(self._queue(queue), rules)
                self._current_queue(queue, now)
        self._wakeups.wake(dict.fromkeys(touched))

    def _set_lanes(self, queue: MemoryQueue, rules: Lanes | None) -> list[str]:
        """Give a queue its rules and its group, and the others of its old group theirs; the names of all of them."""
        left = [other for other in queue.group.queues if other is not queue]
        queue.set_lanes(rules)
        shared = None if rules is None else rules.shared
        joined = [other for other in self._queues.values() if shared and other.rules and other.rules.shared == shared]
        groups = [self._group(*(joined or [queue]))]
        if not set(left) <= set(joined):
            groups.append(self._group(*left))
        for group in groups:
            group.balance()
        return [each.name for group in groups for each in group.queues]

    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        checks.check_lanes(queue, limit)
        with self._lock:
            now = self._now()
            found = self._current_queue(queue, now) if limit else self._queues.get(queue)
            return found.lanes_info(limit) if found else LanesInfo(None, (), 0)

    # -- steps, all under the lock

    def _now(self) -> int:
        if self._closed:
            raise StorageClosed("this memory storage was closed; open a new one")
        return self._clock.now()

    def _queue(self, name: str) -> MemoryQueue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = self._new_queue(name)
            self._group(queue)
        return queue

    def _new_queue(self, name: str) -> MemoryQueue:
        return MemoryQueue(name)

    def _group(self, *queues: MemoryQueue) -> LaneGroup:
        return LaneGroup(*queues)

    def _current_queue(self, name: str, now: int) -> MemoryQueue | None:
        """The queue, with what is due applied; None if it never had a job or a pause."""
        queue = self._queues.get(name)
        if queue is not None:
            self._apply_due(queue, now)
        return queue

    def _wake(self, names: Iterable[str]) -> None:
        """Wake those who wait for these queues, or for one that shares limits with them."""
        groups = (self._queues[name].group.queues for name in names if name in self._queues)
        self._wakeups.wake(dict.fromkeys(queue.name for group in groups for queue in group))

    def _current_group(self, name: str, now: int) -> MemoryQueue | None:
        """The queue, with what is due applied in it and in all that share limits with it."""
        queue = self._queues.get(name)
        if queue is not None:
            left = DUE_AT_ONCE
            for each in queue.group.queues:
                left -= self._apply_due(each, now, left)
        return queue

    def _apply_due(self, queue: MemoryQueue, now: int, most: int = DUE_AT_ONCE) -> int:
        """Apply up to `most` due moves, those that make jobs ready first, and count them."""
        moved = queue.due.apply(now, most, lambda record: self._move_on(record, now))
        queue.group.balance()
        return moved + queue.kept.apply(now, most - moved, self._forget)

    def _balance(self, queues: Iterable[str]) -> None:
        for name in queues:
            queue = self._queues.get(name)
            if queue is not None:
                queue.group.balance()

    def _move_on(self, record: Record, now: int) -> None:
        """The moment of this record has come."""
        if record.state in ENDED:
            self._forget(record)
        elif record.state == "taken":
            record.queue.end_lease(record, now)
        else:
            record.queue.promote(record)

    def _current(self, record: Record | None, now: int) -> Record | None:
        """The record that a call names, with its own move applied however much else is due."""
        if record is not None and record.state not in ("ready", "held", "dead") and record.due <= now:
            self._move_on(record, now)
            return self._jobs.get(record.id)  # a result that was kept may be gone
        return record

    @staticmethod
    def _balanced(record: Record | None) -> Record | None:
        if record is not None:
            record.queue.group.balance()
        return record

    def _find(self, target: Target, now: int) -> Record | None:
        if isinstance(target, ById):
            record = self._jobs.get(target.id)
            if record is not None:
                self._apply_due(record.queue, now)
            return self._balanced(self._current(self._jobs.get(target.id), now))
        queue = self._current_queue(target.queue, now)
        if queue is None:
            return None
        if isinstance(target, ByKey):
            return self._balanced(self._current(queue.keys.get(target.key), now))
        return None if queue.is_paused(now) else queue.head()

    def _add(self, job: NewJob, now: int) -> Enqueued:
        queue = self._queue(job.queue)
        start_time = start_of(job.delay, job.start_at, now)
        if job.key is not None:
            held = self._current(queue.keys.get(job.key), now)
            if held is not None:
                return queue.join(held, job, start_time, now)
        self._last_id = id = self._last_id + 1
        record = Record(
            id, queue, job.data, float(job.rank), job.cost, job.key, now, start_time, job.keep_for, job.reports_to,
            job.lane,
        )  # fmt: skip
        self._jobs[id] = record
        if job.key is not None:
            queue.keys[job.key] = record
            record.waiters = None if job.waiter is None else [job.waiter]
        queue.insert(record, now)
        return Enqueued(id, "created", record.waiting)

    def _leased(self, lease: Lease, now: int) -> Record | None:
        """The taken job that this lease still holds. A lease whose end has come is over, applied or not."""
        return self._leased_in("taken", lease, now)

    def _why_lost(self, lease: Lease, now: int) -> Why:
        """A cancelled job keeps the token of its last lease, so that the worker learns what happened."""
        return "lost" if self._leased_in("cancelled", lease, now) is None else "cancelled"

    def _leased_in(self, state: State, lease: Lease, now: int) -> Record | None:
        record = self._jobs.get(lease.id)
        if (
            record is None
            or record.state != state
            or record.attempts != lease.attempts
            or record.taken_at != lease.taken_at
            or record.due <= now
            or record.queue.name != lease.queue
        ):
            return None
        return record

    def _settle(self, outcome: Outcome, now: int) -> Refused | None:
        record = self._leased(outcome.lease, now)
        if record is None:
            return Refused(outcome.lease, self._why_lost(outcome.lease, now))
        if isinstance(outcome, Done):
            if outcome.waiters is not None and record.waiting > outcome.waiters:
                return Refused(outcome.lease, "grown")
            record.result = outcome.result
            self._report(record, "done", now, outcome.result)
            self._finish(record, "done", now)
        elif isinstance(outcome, Retry):
            record.queue.retry(record, outcome, now)
        else:
            record.queue.bury(record, outcome.reason, now)
            self._report(record, "dead", now, clean(outcome.reason).encode())
        return None

    def _finish(self, record: Record, state: Literal["done", "cancelled"], now: int) -> None:
        record.queue.counts[state] += 1
        record.queue.release_key(record)
        if record.keep_for:
            record.queue.keep(record, state, now)
        else:
            self._forget(record)

    def _change(self, change: Change, now: int) -> str | None:
        """Apply one change and balance the lane: the queue of its job, or None where it does not apply."""
        record = self._balanced(self._current(self._jobs.get(change.id), now))
        if record is None or (change.queue is not None and change.queue != record.queue.name):
            return None
        queue, state = record.queue, record.state
        if change.waiters is not None and record.waiting > change.waiters:
            return None
        match change:
            case Remove():
                if change.waiters is not None and state in ENDED:
                    return None
                self._remove(record, now)
            case Cancel():
                if state in ENDED:
                    return None
                self._report(record, "cancelled", now)
                if state == "taken":
                    record.keep_for = max(record.keep_for, CANCELLED_FOR)
                self._finish(record, "cancelled", now)
            case Revive():
                if state != "dead" or not queue.revive(record, now):
                    return None
                self._report(record, "revived", now)
            case StartNow():
                if state != "delayed":
                    return None
                queue.start_now(record, now)
            case NotCrashed():
                if state in ENDED or not record.crashes:
                    return None
                record.crashes -= 1
            case Rerank():
                if state not in ("ready", "held", "delayed"):
                    return None
                queue.rerank(record, change.rank)
        queue.group.balance()
        return queue.name

    def _remove(self, record: Record, now: int) -> None:
        if record.state not in ("done", "cancelled"):  # else its end was reported
            self._report(record, "removed", now)
        record.queue.release_key(record)
        self._forget(record)

    def _report(self, record: Record, kind: ReportKind, now: int, body: bytes | None = None) -> None:
        """Note what a flow is to be told in this step. `body` is the result, or the reason of a dead job."""
        if record.reports_to is not None:
            report = Report.of(kind, record.id, record.attempts, now, record.key or "", body)
            self._reports.append(report.job(record.reports_to))

    def _take_reports(self) -> list[NewJob]:
        reports, self._reports = self._reports, []
        return reports

    def _forget(self, record: Record) -> None:
        record.queue.leave(record)
        del self._jobs[record.id]
