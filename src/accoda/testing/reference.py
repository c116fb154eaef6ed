"""What a storage should do, written as naively as it can be: one dict of records, and a scan for everything.

It shares no code with any storage, so both are unlikely to be wrong in the same way. `accoda.testing.machine` gives the
same commands to it and to a storage and compares all that can be seen. It is not a storage: not async, not safe for
threads, without `wait`, and it trusts its arguments. It applies all that is due at once: the
machine's jobs are so few that the bound of a storage is never reached. `conformance.storms` tests that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor

from msgspec.structs import replace

from accoda.errors import VersionConflict
from accoda.model import (
    CANCELLED_FOR,
    ENDED,
    NEWCOMER,
    REPORTS,
    RESULT_IN_REPORT,
    TURN,
    Bury,
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
    LaneInfo,
    Lanes,
    LanesInfo,
    Lease,
    Look,
    NewJob,
    NotCrashed,
    Order,
    Outcome,
    QueueStats,
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
    clean,
)

WAITING = ("ready", "held", "delayed")
HOLDS_KEY = (*WAITING, "taken")
NO_RULES = Lanes()


@dataclass
class Record:
    """A job and all that is known of it."""

    id: int
    new: NewJob
    created_at: int
    start_time: int
    state: State = "ready"
    rank: float = 0.0
    attempts: int = 0
    prev_start_time: int | None = None
    waiters: list[bytes] = field(default_factory=list)
    worker: str | None = None
    taken_at: int | None = None
    lease_until: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    result: bytes | None = None
    tries: int = 0
    crashes: int = 0
    cancelled: Lease | None = None  # the lease under which it was cancelled
    sort: float = 0.0  # of a ready job: its turn, or its rank

    @property
    def lease(self) -> Lease:
        return Lease(self.new.queue, self.id, self.attempts, self.taken_at or 0)

    def wait_from(self, start: int, now: int) -> None:
        """Stand in line, from the moment `start`."""
        self.start_time = max(start, now)
        self.state = "delayed" if self.start_time > now else "held"  # until its lane is balanced
        self.worker = self.taken_at = self.lease_until = None

    def come_back(self, start: int, now: int) -> None:
        """Return to the line after a run."""
        self.attempts += 1
        self.prev_start_time = self.start_time
        self.wait_from(start, now)

    def begin_again(self) -> None:
        """What failed so far no longer counts."""
        self.tries = self.crashes = 0


@dataclass
class Page:
    """A document and its versions, which go on when it is gone."""

    value: bytes | None
    version: int
    expires_at: int | None


def ms(seconds: float) -> int:
    return round(seconds * 1000)


class Reference:
    """Both protocols, as plain calls with the same arguments. Time is `now`, moved by `advance`."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.jobs: dict[int, Record] = {}
        self.pages: dict[str, Page] = {}
        self.pauses: dict[str, int | None] = {}
        self.rules: dict[str, Lanes] = {}
        self.counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.queues: set[str] = set()
        self.last_id = 0
        self._reports: list[tuple[str, Report]] = []  # of the call that is under way, each with its flow

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.pauses = {q: until for q, until in self.pauses.items() if until is None or until > self.now}
        for queue in sorted(self.queues):
            self._apply_due(queue)

    def _apply_due(self, queue: str) -> None:
        for job in self._of(queue, "delayed", "taken", "done", "cancelled"):
            if job.state == "delayed" and job.start_time <= self.now:
                job.state = "held"
                self.counts[job.new.queue]["promoted"] += 1
            elif job.state == "taken" and job.lease_until is not None and job.lease_until <= self.now:
                job.come_back(self.now, self.now)
                job.crashes += 1
                self.counts[job.new.queue]["expired"] += 1
            elif job.state in ("done", "cancelled") and (job.ended_at or 0) + ms(job.new.keep_for) <= self.now:
                del self.jobs[job.id]
        self._balance()

    # The line

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers = [self._enqueue_one(new) for new in jobs]
        self._balance()
        return answers

    def _enqueue_one(self, new: NewJob) -> Enqueued:
        self.queues.add(new.queue)
        holder = self._holder(new.queue, new.key)
        if holder is None:
            return self._create(new)
        if new.on_duplicate == "rerank":
            self._rerank(holder, new.rank)
        if new.on_duplicate in ("keep", "rerank"):
            return Enqueued(holder.id, "kept", len(holder.waiters))
        if new.waiter is not None:
            holder.waiters.append(new.waiter)
        if new.on_duplicate == "attach":
            return Enqueued(holder.id, "attached", len(holder.waiters))
        kept = {"reports_to": holder.new.reports_to, "lane": holder.new.lane}
        holder.new, holder.rank = replace(new, **kept), float(new.rank)
        if holder.state == "taken":
            holder.come_back(self._start(new.delay, new.start_at), self.now)
        else:
            holder.wait_from(self._start(new.delay, new.start_at), self.now)
        holder.begin_again()
        return Enqueued(holder.id, "replaced", len(holder.waiters))

    def _create(self, new: NewJob) -> Enqueued:
        self.last_id += 1
        job = Record(self.last_id, new, self.now, self.now, rank=float(new.rank))
        job.wait_from(self._start(new.delay, new.start_at), self.now)
        if new.waiter is not None:
            job.waiters.append(new.waiter)
        self.jobs[job.id] = job
        return Enqueued(job.id, "created", len(job.waiters))

    def _start(self, delay: float | None, moment: int | None) -> int:
        return moment if moment is not None else self.now + ms(delay or 0.0)

    def _holder(self, queue: str, key: str | None) -> Record | None:
        held = (j for j in self._of(queue, *HOLDS_KEY) if key is not None and j.new.key == key)
        return next(held, None)

    def _of(self, queue: str, *states: str) -> list[Record]:
        return [j for j in self.jobs.values() if j.new.queue == queue and j.state in states]

    def _rerank(self, job: Record, rank: float) -> None:
        job.rank = float(rank)
        if job.state == "ready":  # it leaves the line and comes in again
            job.state = "held"

    # Lanes

    def _balance(self) -> None:
        """The end of a step: of each lane as many jobs are in the line as its limit allows."""
        waiting = [job for job in self.jobs.values() if job.state in ("ready", "held")]
        for job in waiting:
            if job.new.lane is None and job.state == "held":
                job.state, job.sort = "ready", job.rank
        every = {(self._group(job.new.queue), job.new.lane) for job in waiting if job.new.lane is not None}
        for queues, lane in sorted(every):
            self._balance_lane(queues, lane)

    def _group(self, queue: str) -> tuple[str, ...]:
        """The queues that share their limits with this one, itself included."""
        shared = self._rules(queue).shared
        return (queue,) if shared is None else tuple(sorted(q for q, r in self.rules.items() if r.shared == shared))

    def _rules(self, queue: str) -> Lanes:
        return self.rules.get(queue, NO_RULES)

    def _balance_lane(self, queues: tuple[str, ...], lane: str) -> None:
        jobs = [job for queue in queues for job in self._of(queue, "ready", "held", "taken") if job.new.lane == lane]
        waiting = sorted((job for job in jobs if job.state != "taken"), key=lambda job: (job.rank, job.id))
        limits = [limit for queue in queues if (limit := self._rules(queue).limit_of(lane)) is not None]
        room = max(0, min(limits) - (len(jobs) - len(waiting))) if limits else len(waiting)
        for job in waiting[room:]:
            job.state = "held"
        for job in waiting[:room]:
            if job.state == "held":
                rules = self._rules(job.new.queue)
                job.sort = self._turn(job, rules) if rules.fair else job.rank
                job.state = "ready"

    def _turn(self, job: Record, rules: Lanes) -> float:
        lane, level = job.new.lane or "", float(floor(job.rank))
        line = [j for j in self._of(job.new.queue, "ready") if j.new.lane is not None and level <= j.sort < level + 1]
        length = rules.turn_of(lane, job.new.cost)
        own = [each.sort for each in line if each.new.lane == lane]
        turn = max(own) + length if own else min((j.sort for j in line), default=level) + length * NEWCOMER
        return turn if turn < level + 1 or level + 1 == level else level + 1 - TURN

    def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        self.rules.pop(queue, None)
        if rules is not None:
            self.rules[queue] = rules
        self._balance()

    def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        counts: dict[str, dict[str, int]] = defaultdict(lambda: {"ready": 0, "held": 0, "taken": 0})
        for job in self._of(queue, "ready", "held", "taken"):
            if job.new.lane is not None:
                counts[job.new.lane][job.state] += 1
        found = [LaneInfo(lane, **each) for lane, each in counts.items()]
        found.sort(key=lambda each: (-each.ready - each.held, each.lane))
        return LanesInfo(self.rules.get(queue), tuple(found[:limit]), len(found) if limit else 0)

    def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        line = sorted(self._of(queue, "ready"), key=_place)
        taken: list[Job] = []
        left = max_cost
        for job in line if self._gives(queue) else ():
            if len(taken) == count or not self._gives(queue) or (left is not None and job.new.cost > left):
                break
            if left is not None:
                left -= job.new.cost
            job.state, job.worker = "taken", clean(worker)
            job.taken_at, job.lease_until = self.now, self.now + ms(lease)
            taken.append(_as_job(job))
        return taken

    def _held(self, lease: Lease) -> Record | None:
        job = self.jobs.get(lease.id)
        return job if job is not None and job.state == "taken" and job.lease == lease else None

    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused: list[Refused] = []
        then: list[NewJob] = []
        for outcome in outcomes:
            job = self._held(outcome.lease)
            if job is None:
                refused.append(self._lost(outcome.lease))
            elif isinstance(outcome, Done) and outcome.waiters is not None and len(job.waiters) > outcome.waiters:
                refused.append(Refused(outcome.lease, "grown"))
            else:
                self._apply(job, outcome)
                then += outcome.then
        for new in then:
            self._enqueue_one(new)
        self._add_reports()
        return refused

    def _apply(self, job: Record, outcome: Outcome) -> None:
        counts = self.counts[job.new.queue]
        match outcome:
            case Done():
                counts["done"] += 1
                self._finish(job, "done")
                job.result = outcome.result
                self._report(job, "done")
            case Retry():
                counts["retried"] += 1
                job.reason = clean(outcome.reason)
                job.tries += outcome.counts
                job.rank = job.rank if outcome.rank is None else float(outcome.rank)
                job.come_back(self._start(outcome.delay, outcome.at), self.now)
            case Bury():
                counts["buried"] += 1
                job.reason = clean(outcome.reason)
                self._end(job, "dead")
                self._report(job, "dead")

    def _report(self, job: Record, kind: ReportKind) -> None:
        if job.new.reports_to is None:
            return
        size, body = -1, b""
        if kind == "dead":
            body = (job.reason or "").encode()
        elif kind == "done" and job.result is not None:
            size = len(job.result)
            body = job.result if size <= RESULT_IN_REPORT else b""
        report = Report(kind, job.id, job.attempts, self.now, size, job.new.key or "", body)
        self._reports.append((job.new.reports_to, report))

    def _add_reports(self) -> None:
        reports, self._reports = self._reports, []
        self.enqueue(  # which balances the lanes
            [NewJob(REPORTS, key=flow, on_duplicate="attach", waiter=report.wire()) for flow, report in reports]
        )

    def _lost(self, lease: Lease) -> Refused:
        job = self.jobs.get(lease.id)
        why: Why = "cancelled" if job is not None and job.cancelled == lease else "lost"
        return Refused(lease, why)

    def _finish(self, job: Record, state: State) -> None:
        self._end(job, state)
        if ms(job.new.keep_for) == 0:
            del self.jobs[job.id]

    def _end(self, job: Record, state: State) -> None:
        job.state, job.ended_at = state, self.now
        job.worker = job.taken_at = job.lease_until = None

    def held(self) -> list[Lease]:
        """The leases of all taken jobs."""
        return [job.lease for job in self.jobs.values() if job.state == "taken"]

    def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        refused = []
        for each in leases:
            job = self._held(each)
            if job is None:
                refused.append(self._lost(each))
            else:
                job.lease_until = self.now + ms(lease)
        return refused

    def stats(self) -> Stats:
        return Stats({queue: self._stats_of(queue) for queue in self.queues | set(self.pauses)})

    def _stats_of(self, queue: str) -> QueueStats:
        sizes = {state: len(self._of(queue, state)) for state in ("ready", "held", "taken", "delayed", "dead")}
        born = min((j.created_at for j in self._of(queue, "ready")), default=self.now)
        return QueueStats(
            total=sum(sizes.values()),
            **sizes,
            **self.counts[queue],
            oldest_age=(self.now - born) / 1000,
            paused=queue in self.pauses,
            paused_until=self.pauses.get(queue),
        )

    def wait(self, queues: Sequence[str], timeout: float = 0.0) -> bool:
        """Whether something is takable; it does not sleep."""
        return any(self._of(queue, "ready") and self._gives(queue) for queue in queues)

    def _gives(self, queue: str) -> bool:
        """Whether anything may be taken from the queue."""
        total = self._rules(queue).total
        return queue not in self.pauses and (total is None or len(self._of(queue, "taken")) < total)

    # Documents

    def _page(self, name: str) -> Page | None:
        page = self.pages.get(name)
        if page is None or page.value is None or (page.expires_at is not None and page.expires_at <= self.now):
            return None
        return page

    def read(self, name: str) -> Document | None:
        page = self._page(name)
        return None if page is None else Document(name, page.value or b"", page.version, page.expires_at)

    def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        page = self._page(name)
        found = page.version if page is not None else 0
        if version is not None and version != found:
            raise VersionConflict(name, version, found)
        before = self.pages.get(name, Page(None, 0, None)).version
        ends = None if ttl is None else self.now + ms(ttl)
        self.pages[name] = Page(value, before + 1, ends)
        return before + 1

    def documents(self, prefix: str) -> list[Document]:
        found = (self.read(name) for name in sorted(self.pages) if name.startswith(prefix))
        return [document for document in found if document is not None]

    # For people

    def look(self, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> Look:
        job = self._target(target)
        if job is None:
            return Look(self.now)
        waiters = () if waiters_after is None else tuple(job.waiters[waiters_after:])
        if not ahead or job.state not in ("ready", "delayed"):
            return Look(self.now, _as_info(job), waiters)
        own = _place(job) if job.state == "ready" else (job.rank, job.id)
        line = [j for j in self._of(job.new.queue, "ready") if _place(j) < own]
        return Look(self.now, _as_info(job), waiters, len(line), sum(each.id > job.id for each in line))

    def _target(self, target: Target) -> Record | None:
        if isinstance(target, ById):
            return self.jobs.get(target.id)
        if isinstance(target, ByKey):
            return self._holder(target.queue, target.key)
        line = self._of(target.queue, "ready") if self._gives(target.queue) else []
        return min(line, key=_place, default=None)

    def change(self, changes: Sequence[Change]) -> int:
        applied = 0
        for change in changes:
            applied += self._change_one(change)
            self._balance()
        self._add_reports()
        return applied

    def _change_one(self, change: Change) -> bool:
        job = self.jobs.get(change.id)
        if job is None or (change.queue is not None and change.queue != job.new.queue):
            return False
        if change.waiters is not None and len(job.waiters) > change.waiters:
            return False
        match change:
            case Remove() if change.waiters is None or job.state in HOLDS_KEY:
                del self.jobs[job.id]
                if job.state not in ("done", "cancelled"):
                    self._report(job, "removed")
            case Cancel() if job.state in HOLDS_KEY:
                if job.state == "taken":
                    job.cancelled = job.lease
                    job.new = replace(job.new, keep_for=max(job.new.keep_for, CANCELLED_FOR))
                self.counts[job.new.queue]["cancelled"] += 1
                self._finish(job, "cancelled")
                self._report(job, "cancelled")
            case Revive() if job.state == "dead" and self._holder(job.new.queue, job.new.key) is None:
                job.ended_at = None
                job.come_back(self.now, self.now)
                job.begin_again()
                self._report(job, "revived")
            case StartNow() if job.state == "delayed":
                job.state, job.start_time = "held", self.now
            case NotCrashed() if job.state in HOLDS_KEY and job.crashes:
                job.crashes -= 1
            case Rerank() if job.state in WAITING:
                self._rerank(job, change.rank)
            case _:
                return False
        return True

    def browse(
        self, queue: str, state: State, *, order: Order = "line", after: Cursor | None = None, limit: int | None = None
    ) -> list[JobInfo]:
        latest_first = order == "line" and state in ENDED
        line = [(info.cursor(order).sort, info.id, info) for info in map(_as_info, self._of(queue, state))]
        line.sort(key=lambda each: each[:2], reverse=latest_first)
        if after is not None:
            begin = (after.sort if order == "line" else 0.0, after.id)
            line = [each for each in line if (each[:2] < begin if latest_first else each[:2] > begin)]
        return [info for *_, info in line[:limit]]

    def pause(self, queue: str, until: int | None) -> None:
        self.pauses[queue] = until
        self.advance(0)

    def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        old = [(_since(job), job.id) for job in self._of(queue, state) if before is None or _since(job) < before]
        old.sort(key=lambda each: each if state in ENDED else each[1:])
        for _, id in old[:limit]:
            self._change_one(Remove(id))
        self._add_reports()
        return len(old[:limit])


def _place(job: Record) -> tuple[float, int]:
    """What orders ready jobs."""
    return job.sort, job.id


def _since(job: Record) -> int:
    """From when on retention counts."""
    return job.created_at if job.ended_at is None else job.ended_at


def _as_job(job: Record) -> Job:
    new = job.new
    return Job(
        job.id, new.queue, new.data, job.rank, new.cost, new.key, job.attempts, job.created_at, job.start_time,
        job.prev_start_time, len(job.waiters), job.lease, job.tries, job.crashes, new.lane,
    )  # fmt: skip


def _as_info(job: Record) -> JobInfo:
    new = job.new
    return JobInfo(
        job.id, new.queue, job.state, new.data, job.rank, new.cost, new.key, job.attempts, job.created_at,
        job.start_time, job.prev_start_time, len(job.waiters), new.keep_for, job.worker, job.taken_at,
        job.lease_until, job.ended_at, job.reason, job.result, job.tries, job.crashes, new.lane,
        job.sort if job.state == "ready" and job.sort != job.rank else None,
    )  # fmt: skip
