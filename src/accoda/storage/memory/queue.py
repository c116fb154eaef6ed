"""One queue in memory: its records by state, the orderings over them, and the moves between states.

Entries of the orderings are hints: an entry counts only if the record still says the same, so nothing is ever searched
for in a heap. Stale entries are dropped when they come to the top, or all at once when they are the majority.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, nsmallest

from msgspec import Struct

from accoda.model import (
    AHEAD_AT_MOST,
    ENDED,
    STATES,
    Cursor,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Order,
    QueueStats,
    Retry,
    State,
    clean,
)
from accoda.storage.memory.due import SLACK, Due


class Record(Struct, gc=False):
    id: int
    queue: MemoryQueue
    data: bytes
    rank: float
    cost: int
    key: str | None
    created_at: int
    start_time: int
    keep_for: float
    reports_to: str | None = None
    state: State = "ready"
    due: int = 0  # delayed: start time; taken: end of the lease; done, cancelled: end of keeping
    attempts: int = 0
    prev_start_time: int | None = None
    waiters: list[bytes] | None = None
    worker: str | None = None
    taken_at: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    result: bytes | None = None
    tries: int = 0
    crashes: int = 0

    @property
    def waiting(self) -> int:
        """How many waiters it has."""
        return len(self.waiters) if self.waiters else 0

    def give_back(self, start_time: int) -> None:
        """The job comes back: a new token, and the old start time remembered."""
        self.attempts += 1
        self.prev_start_time, self.start_time = self.start_time, start_time

    def begin_again(self) -> None:
        """What failed so far no longer counts. The attempts stay: they are the token."""
        self.tries = self.crashes = 0


class MemoryQueue:
    """The moves are called under the storage's lock, for records that are in the state that the move is for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.states: dict[State, dict[int, Record]] = {state: {} for state in STATES}
        self.ready = self.states["ready"]
        self.order: list[tuple[float, int]] = []  # heap of (rank, id) of ready jobs
        self.ages: list[int] = []  # heap of ids of ready jobs
        self.due = Due(self.states["delayed"], self.states["taken"])  # what becomes ready
        self.kept = Due(self.states["done"], self.states["cancelled"])  # apart, so that old results never delay a job
        self.keys: dict[str, Record] = {}
        self.counts = {"done": 0, "retried": 0, "buried": 0, "expired": 0, "cancelled": 0, "promoted": 0}
        self.paused = False
        self.paused_until: int | None = None

    # -- moves

    def move(self, record: Record, state: State) -> None:
        del self.states[record.state][record.id]
        record.state = state
        self.states[state][record.id] = record

    def insert(self, record: Record, now: int) -> None:
        """A record that is in no state yet becomes ready, or delayed until its start time."""
        record.state = "ready" if record.start_time <= now else "delayed"
        self.states[record.state][record.id] = record
        if record.state == "ready":
            self.line_up(record)
        else:
            record.due = record.start_time
            self.due.watch(record.due, record.id)

    def line_up(self, record: Record) -> None:
        """Put a ready record into the orderings, at its rank."""
        heappush(self.order, (record.rank, record.id))
        heappush(self.ages, record.id)
        if len(self.order) > 2 * len(self.ready) + SLACK:
            self.order = [(each.rank, id) for id, each in self.ready.items()]
            heapify(self.order)
        if len(self.ages) > 2 * len(self.ready) + SLACK:
            self.ages = sorted(self.ready)

    def start(self, record: Record) -> None:
        self.move(record, "ready")
        self.line_up(record)

    def promote(self, record: Record) -> None:
        """The start time of a delayed job has come."""
        self.counts["promoted"] += 1
        self.start(record)

    def join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
        """The new job's key is held by another."""
        if job.on_duplicate in ("keep", "rerank"):
            if job.on_duplicate == "rerank":
                self.rerank(held, job.rank)
            return Enqueued(held.id, "kept", held.waiting)
        if job.waiter is not None:
            if held.waiters is None:
                held.waiters = []
            held.waiters.append(job.waiter)
        if job.on_duplicate == "attach":
            return Enqueued(held.id, "attached", held.waiting)
        self.replace(held, job, start_time, now)
        return Enqueued(held.id, "replaced", held.waiting)

    def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
        if record.state == "taken":
            # The run of the old data is over: its token no longer fits, so its outcome cannot settle the new data.
            record.give_back(start_time)
        record.data, record.rank, record.cost, record.keep_for = job.data, float(job.rank), job.cost, job.keep_for
        record.start_time = start_time
        record.begin_again()
        del self.states[record.state][record.id]
        self.insert(record, now)

    def end_lease(self, record: Record, now: int) -> None:
        record.give_back(now)
        record.crashes += 1
        self.counts["expired"] += 1
        self.start(record)

    def retry(self, record: Record, outcome: Retry, now: int) -> None:
        self.counts["retried"] += 1
        record.give_back(start_of(outcome.delay, outcome.at, now))
        record.tries += outcome.counts
        record.reason = clean(outcome.reason)
        if outcome.rank is not None:
            record.rank = float(outcome.rank)
        del self.states["taken"][record.id]
        self.insert(record, now)

    def bury(self, record: Record, reason: str, now: int) -> None:
        self.counts["buried"] += 1
        self.release_key(record)
        record.reason, record.ended_at = clean(reason), now
        self.move(record, "dead")

    def revive(self, record: Record, now: int) -> bool:
        """False: another job holds its key."""
        if record.key is not None and self.keys.setdefault(record.key, record) is not record:
            return False
        record.give_back(now)
        record.begin_again()
        record.ended_at = None
        self.start(record)
        return True

    def start_now(self, record: Record, now: int) -> None:
        """A delayed job does not come back from a run, so its token stays."""
        record.start_time = now
        self.start(record)

    def rerank(self, record: Record, rank: float) -> None:
        record.rank = float(rank)
        if record.state == "ready":
            self.line_up(record)

    def keep(self, record: Record, state: State, now: int) -> None:
        """A finished job stays for people to look at."""
        record.ended_at = now
        record.due = now + round(record.keep_for * 1000)
        self.move(record, state)
        self.kept.watch(record.due, record.id)

    def release_key(self, record: Record) -> None:
        if record.key is not None and self.keys.get(record.key) is record:
            del self.keys[record.key]

    def pause(self, until: int | None, now: int) -> None:
        self.paused = until is None or until > now
        self.paused_until = until if self.paused else None

    def clear(self) -> None:
        """Let go of all records.

        They are not tracked by the garbage collector (a million of them would slow every collection down), so the
        cycle record -> queue -> record is broken by hand.
        """
        for records in self.states.values():
            records.clear()
        self.keys.clear()

    # -- questions

    def is_paused(self, now: int) -> bool:
        if self.paused_until is not None:
            self.pause(self.paused_until, now)
        return self.paused

    def next_moment(self, now: int) -> int | None:
        """When something may be takable, once what is due was applied."""
        if self.is_paused(now):
            return self.paused_until
        if self.ready:
            return now
        return self.due.next()  # not after now if one call's bound was reached: then something is still due

    def head(self) -> Record | None:
        """The record that `take` would hand out first."""
        while self.order:
            rank, id = self.order[0]
            record = self.ready.get(id)
            if record is not None and record.rank == rank:
                return record
            heappop(self.order)
        return None

    def ahead_of(self, record: Record) -> tuple[int, int]:
        """How many jobs `take` would hand out before this one, and how many of them have a higher id."""
        own = (record.rank, record.id)
        before = [place for id, each in self.ready.items() if (place := (each.rank, id)) < own]
        newer = sum(id > record.id for _, id in nsmallest(AHEAD_AT_MOST, before))
        return min(len(before), AHEAD_AT_MOST + 1), newer

    def page(self, state: State, order: Order, after: Cursor | None, limit: int) -> list[Record]:
        records = self.states[state].values()
        if order == "id":
            return nsmallest(limit, (each for each in records if after is None or each.id > after.id), lambda r: r.id)
        begin = None if after is None else _place_in_line(state, after.sort, after.id)
        places = ((_place_in_line(state, _sort(each), each.id), each.id) for each in records)
        chosen = nsmallest(limit, (found for found in places if begin is None or found[0] > begin))
        return [self.states[state][id] for _, id in chosen]

    def purgeable(self, state: State, before: int | None, limit: int | None) -> list[int]:
        """The ids of records in a state since before a moment: ended ones by their end, others by id."""
        found = []
        for record in self.states[state].values():
            since = record.created_at if record.ended_at is None else record.ended_at
            if before is None or since < before:
                found.append((record.ended_at or 0, record.id))
        return [id for _, id in sorted(found)[:limit]]

    def stats(self, now: int) -> QueueStats:
        ages, ready, states = self.ages, self.ready, self.states
        while ages and ages[0] not in ready:
            heappop(ages)
        paused = self.is_paused(now)
        return QueueStats(
            total=sum(len(states[state]) for state in ("ready", "taken", "delayed", "dead")),
            ready=len(ready),
            taken=len(states["taken"]),
            delayed=len(states["delayed"]),
            dead=len(states["dead"]),
            oldest_age=max(0, now - ready[ages[0]].created_at) / 1000 if ages else 0.0,
            paused=paused,
            paused_until=self.paused_until,
            **self.counts,
        )

    # -- take

    def pick(self, count: int, max_cost: int | None) -> list[Record]:
        """Take the first ready records out of the line, in order, while their summed cost fits."""
        picked: list[Record] = []
        order, ready = self.order, self.ready
        while order and len(picked) < count:
            rank, id = order[0]
            record = ready.get(id)
            if record is not None and record.rank == rank:
                if max_cost is not None:
                    if record.cost > max_cost:
                        break
                    max_cost -= record.cost
                del ready[id]  # so that a second hint at the same record is stale
                picked.append(record)
            heappop(order)
        return picked

    def lease(self, records: Iterable[Record], now: int, until: int, worker: str) -> list[Job]:
        jobs = []
        taken = self.states["taken"]
        for record in records:
            record.state, record.due, record.worker, record.taken_at = "taken", until, worker, now
            taken[record.id] = record
            jobs.append(as_job(record))
        self.due.watch(until, *(job.id for job in jobs))
        return jobs


def start_of(delay: float | None, at: int | None, now: int) -> int:
    """The moment that a delay or a start moment means. One in the past is now."""
    if at is not None:
        return max(now, at)
    return now + round(delay * 1000) if delay else now


def _sort(record: Record) -> float:
    """What orders the jobs of a state: the same as in `JobInfo.cursor`."""
    if record.state == "ready":
        return record.rank
    return record.due if record.ended_at is None else record.ended_at


def _place_in_line(state: State, sort: float, id: int) -> tuple[float, int]:
    return (-sort, -id) if state in ENDED else (sort, id)  # latest first


def as_job(record: Record) -> Job:
    name, id, attempts, taken_at = record.queue.name, record.id, record.attempts, record.taken_at or 0
    return Job(
        id,
        name,
        record.data,
        record.rank,
        record.cost,
        record.key,
        attempts,
        record.created_at,
        record.start_time,
        record.prev_start_time,
        record.waiting,
        Lease(name, id, attempts, taken_at),
        record.tries,
        record.crashes,
    )


def describe(record: Record) -> JobInfo:
    return JobInfo(
        id=record.id,
        queue=record.queue.name,
        state=record.state,
        data=record.data,
        rank=record.rank,
        cost=record.cost,
        key=record.key,
        attempts=record.attempts,
        created_at=record.created_at,
        start_time=record.start_time,
        prev_start_time=record.prev_start_time,
        waiters=record.waiting,
        keep_for=record.keep_for,
        worker=record.worker,
        taken_at=record.taken_at,
        lease_until=record.due if record.state == "taken" else None,
        ended_at=record.ended_at,
        reason=record.reason,
        result=record.result,
        tries=record.tries,
        crashes=record.crashes,
    )
