"""Jobs in this process's memory: for tests, for trying things out, and for work that may be lost.

Everything happens under one lock, on the lines of `accoda.storage.memory.line`, by the moves of `moves` beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from accoda.clock import Clock, SystemClock
from accoda.errors import StorageClosed
from accoda.model import (
    Bury,
    Document,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    Peek,
    Place,
    Rank,
    Refused,
    Retry,
    State,
    Stats,
    check_document_name,
    check_queue,
    clean,
)
from accoda.storage import inputs
from accoda.storage.closing import Closing
from accoda.storage.memory import moves
from accoda.storage.memory.documents import Documents
from accoda.storage.memory.line import Line, Record, count, describe, head, lease_out, older, pick, waiters_after
from accoda.storage.memory.place import place_of
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.signal import Signal


class MemoryStorage(Closing):
    """A `Store` in memory. Safe to share between threads and event loops of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._signal = Signal()
        self._jobs: dict[int, Record] = {}
        self._lines: dict[str, Line] = {}
        self._documents = Documents()
        self._last_id = 0
        self._closed = False

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            self._jobs.clear()
            for line in self._lines.values():
                line.clear()
        self._signal.ring()

    # -- the hot path

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        inputs.check_jobs(jobs)
        with self._lock:
            now = self._now()
            answers = [self._add(job, now) for job in jobs]
        if self._signal.awaited:  # who lies down to sleep only now looks first, and finds them
            self._signal.ring({job.queue for job in jobs})
        return answers

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        inputs.check_take(queue, count, lease, max_cost)
        with self._lock:
            now = self._now()
            line = self._lines.get(queue)
            if line is None:
                return []
            self._apply_due(line, now)
            if line.is_paused(now):
                return []
            records = pick(line, count, max_cost)
            return lease_out(line, records, now, now + round(lease * 1000), clean(worker)) if records else []

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        inputs.check_outcomes(outcomes)
        refused: list[Refused] = []
        follow_ups: list[NewJob] = []
        touched: set[str] = set()
        with self._lock:
            now = self._now()
            for outcome in outcomes:
                why = self._apply(outcome, now)
                if why is not None:
                    refused.append(why)
                    continue
                touched.add(outcome.lease.queue)
                if (type(outcome) is Done or type(outcome) is Bury) and outcome.then:
                    follow_ups.extend(outcome.then)
            for job in follow_ups:
                self._add(job, now)
        self._signal.ring(touched.union(job.queue for job in follow_ups))
        return refused

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        inputs.check_leases(leases, lease)
        refused = []
        with self._lock:
            now = self._now()
            until = now + round(lease * 1000)
            for held in leases:
                record = self._current(held, now)
                if record is None:
                    refused.append(Refused(held, "lost"))
                else:
                    record.due = until
                    record.line.due.watch(until, (record.id,))
        self._signal.ring({held.queue for held in leases})  # an end may have come nearer
        return refused

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        inputs.check_ranks(ranks)
        applied = 0
        with self._lock:
            now = self._now()
            for new in ranks:
                record = self._jobs.get(new.id)
                if record is None or record.line.name != new.queue:
                    continue
                self._bring_up_to_date(record, now)
                crowded = new.waiters is not None and len(record.waiters or ()) > new.waiters
                if record.state not in ("ready", "delayed") or crowded:
                    continue
                record.rank = float(new.rank)
                if record.state == "ready":
                    record.line.make_ready(record)
                applied += 1
        return applied

    async def waiters(self, lease: Lease) -> list[bytes]:
        inputs.check_leases((lease,), 1.0)
        with self._lock:
            record = self._current(lease, self._now())
            return list(record.waiters or ()) if record else []

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        inputs.check_peek(queue, key, after)
        with self._lock:
            now = self._now()
            record = self._look_at(queue, key, now)
            return Peek(now, describe(record), waiters_after(record, after)) if record else Peek(now)

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        inputs.check_drop(queue, id, waiters)
        with self._lock:
            now = self._now()
            record = self._up_to_date(id, now)
            if record is None or record.line.name != queue or record.state in ("dead", "done"):
                return False
            return len(record.waiters or ()) <= waiters and self._remove(id, now)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        inputs.check_wait(queues, timeout)

        async def look() -> tuple[bool, int | None]:
            with self._lock:
                now = self._now()
                moments = [self._next_moment(line, now) for name in queues if (line := self._lines.get(name))]
            soonest = min((moment for moment in moments if moment is not None), default=None)
            return soonest is not None and soonest <= now, soonest

        return await self._signal.wait(self._clock, queues, timeout, look)

    async def stats(self) -> Stats:
        with self._lock:
            now = self._now()
            left = DUE_AT_ONCE
            for line in self._lines.values():
                left -= self._apply_due(line, now, left)
            return Stats({line.name: count(line, now) for line in self._lines.values()})

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        with self._lock:
            return self._documents.read(name, self._now())

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        inputs.check_write(name, value, version, ttl)
        with self._lock:
            return self._documents.write(name, value, version, ttl, self._now())

    async def documents(self, prefix: str) -> list[Document]:
        inputs.check_prefix(prefix)
        with self._lock:
            return self._documents.starting_with(prefix, self._now())

    # -- for people

    async def find(self, id: int) -> JobInfo | None:
        inputs.check_ids((id,))
        with self._lock:
            record = self._up_to_date(id, self._now())
            return describe(record) if record else None

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        inputs.check_browse(queue, state, after, limit)
        with self._lock:
            now = self._now()
            line = self._lines.get(queue)
            if line is None:
                return []
            self._apply_due(line, now)
            ids = sorted(id for id in line.states[state] if after is None or id > after)
            return [describe(self._jobs[id]) for id in ids[:limit]]

    async def place(self, id: int, most: int = 1000) -> Place | None:
        inputs.check_place(id, most)
        with self._lock:
            now = self._now()
            if (record := self._jobs.get(id)) is not None:
                self._apply_due(record.line, now)
            record = self._up_to_date(id, now)
            return place_of(record, most, now) if record else None

    async def remove(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        with self._lock:
            now = self._now()
            return sum(self._remove(id, now) for id in ids)

    async def revive(self, ids: Sequence[int]) -> int:
        return self._make_ready(ids, self._revive)

    async def start_now(self, ids: Sequence[int]) -> int:
        return self._make_ready(ids, self._start_now)

    def _make_ready(self, ids: Sequence[int], step: Callable[[int, int], Record | None]) -> int:
        inputs.check_ids(ids)
        with self._lock:
            now = self._now()
            moved = [record for id in ids if (record := step(id, now))]
        self._signal.ring({record.line.name for record in moved})
        return len(moved)

    async def pause(self, queue: str, until: int | None = None) -> None:
        inputs.check_pause(queue, until)
        with self._lock:
            self._now()
            line = self._line(queue)
            line.paused, line.paused_until = True, until
        self._signal.ring({queue})  # the end of the pause is a new moment to wake at

    async def resume(self, queue: str) -> None:
        check_queue(queue)
        with self._lock:
            self._now()
            line = self._lines.get(queue)
            if line is not None:
                line.paused, line.paused_until = False, None
        self._signal.ring({queue})

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        inputs.check_purge(queue, state, before, limit)
        with self._lock:
            now = self._now()
            line = self._lines.get(queue)
            if line is None:
                return 0
            self._apply_due(line, now)
            return sum(self._remove(id, now) for id in older(line, state, before, limit))

    # -- steps, all under the lock

    def _now(self) -> int:
        if self._closed:
            raise StorageClosed("this memory storage was closed; open a new one")
        return self._clock.now()

    def _line(self, name: str) -> Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(name)
        return line

    def _add(self, job: NewJob, now: int) -> Enqueued:
        line = self._line(job.queue)
        start_time = moves.start_of(job, now)
        if job.key is not None:
            held = line.keys.get(job.key)
            if held is not None:
                self._bring_up_to_date(held, now)
                return self._join(held, job, start_time, now)
        self._last_id = id = self._last_id + 1
        record = Record(id, line, job.data, float(job.rank), job.cost, job.key, now, start_time, job.keep_for)
        self._jobs[id] = record
        if job.key is not None:
            line.keys[job.key] = record
            record.waiters = None if job.waiter is None else [job.waiter]
        moves.wait_from(record, start_time, now)
        return Enqueued(id, "created", len(record.waiters or ()))

    def _join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
        return moves.join(held, job, start_time, now)

    def _look_at(self, queue: str, key: str | None, now: int) -> Record | None:
        """The job that holds the key or, without one, the head of the line."""
        line = self._lines.get(queue)
        if line is None:
            return None
        self._apply_due(line, now)
        if key is None:
            return None if line.is_paused(now) else head(line)
        held = line.keys.get(key)
        return self._up_to_date(held.id, now) if held else None

    def _apply_due(self, line: Line, now: int, most: int = DUE_AT_ONCE) -> int:
        """Apply up to `most` due moves, those that make jobs ready first; tell how many."""
        moved = line.due.apply(now, most, lambda record: self._move_on(record, now))
        return moved + line.kept.apply(now, most - moved, self._forget)

    def _move_on(self, record: Record, now: int) -> None:
        """The moment of this record has come."""
        if record.state == "done":
            self._forget(record)
        elif record.state == "taken":
            moves.end_lease(record, now)
        else:
            moves.start(record)

    def _bring_up_to_date(self, record: Record, now: int) -> None:
        """Apply what is due for one record that a call names, however much else is due."""
        if record.state not in ("ready", "dead") and record.due <= now:
            self._move_on(record, now)

    def _up_to_date(self, id: int, now: int) -> Record | None:
        record = self._jobs.get(id)
        if record is not None:
            self._bring_up_to_date(record, now)
        return self._jobs.get(id)  # what was kept may be over

    def _current(self, lease: Lease, now: int) -> Record | None:
        """The taken job that this lease still holds. A lease whose end has come is over, applied or not."""
        record = self._jobs.get(lease.id)
        if (
            record is None
            or record.state != "taken"
            or record.attempts != lease.attempts
            or record.due <= now
            or record.line.name != lease.queue
        ):
            return None
        return record

    def _apply(self, outcome: Outcome, now: int) -> Refused | None:
        record = self._current(outcome.lease, now)
        if record is None:
            return Refused(outcome.lease, "lost")
        match outcome:
            case Done():
                if outcome.waiters is not None and len(record.waiters or ()) > outcome.waiters:
                    return Refused(outcome.lease, "grown")
                self._finish(record, outcome.result, now)
            case Retry():
                moves.retry(record, outcome, now)
            case Bury():
                moves.bury(record, outcome.reason, now)
        return None

    def _finish(self, record: Record, result: bytes | None, now: int) -> None:
        record.line.counts["done"] += 1
        record.line.release_key(record)
        if record.keep_for:
            moves.keep(record, result, now)
        else:
            self._forget(record)

    def _forget(self, record: Record) -> None:
        del record.line.states[record.state][record.id]
        del self._jobs[record.id]

    def _remove(self, id: int, now: int) -> bool:
        record = self._up_to_date(id, now)
        if record is None:
            return False
        record.line.release_key(record)
        self._forget(record)
        return True

    def _revive(self, id: int, now: int) -> Record | None:
        record = self._jobs.get(id)
        return record if record is not None and moves.revive(record, now) else None

    def _start_now(self, id: int, now: int) -> Record | None:
        return record if (record := self._up_to_date(id, now)) and moves.start_now(record, now) else None

    def _next_moment(self, line: Line, now: int) -> int | None:
        """When something may be takable in this queue; now, if it is."""
        self._apply_due(line, now)
        return line.next_moment(now)
