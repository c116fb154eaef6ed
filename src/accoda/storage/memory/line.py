"""One queue in memory: its records by state, and the orderings over them.

Entries of the orderings are hints: an entry counts only if the record still says the same, so nothing is ever searched
for in a heap. Stale entries are dropped when they come to the top, or all at once when they are the majority.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from msgspec import Struct

from accoda.model import STATES, Job, JobInfo, Lease, QueueStats, State
from accoda.storage.memory.due import Due
from accoda.storage.memory.lanes import Lanes

_SLACK = 64  # stale entries that are not worth a clean-up


class Record(Struct, gc=False):
    id: int
    line: Line
    data: bytes
    rank: float
    cost: int
    key: str | None
    created_at: int
    start_time: int
    keep_for: float
    state: State = "ready"
    due: int = 0  # delayed: start time; taken: end of the lease; done: end of keeping
    attempts: int = 0
    prev_start_time: int | None = None
    waiters: list[bytes] | None = None
    worker: str | None = None
    taken_at: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    result: bytes | None = None
    fresh_at: int = 0
    crashes: int = 0


class Line:
    """One queue: its records by state, and heaps of hints."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.states: dict[State, dict[int, Record]] = {state: {} for state in STATES}
        self.ready = self.states["ready"]
        self.order = Lanes()  # (rank, id) of ready jobs
        self.ages: list[int] = []  # ids of ready jobs
        self.due = Due(self.states["delayed"], self.states["taken"])  # whose end makes a job ready
        self.kept = Due(self.states["done"])  # apart, so that old results never stand before a job
        self.keys: dict[str, Record] = {}
        self.counts = {"done": 0, "retried": 0, "buried": 0, "expired": 0}
        self.paused = False
        self.paused_until: int | None = None

    def move(self, record: Record, state: State) -> None:
        del self.states[record.state][record.id]
        record.state = state
        self.states[state][record.id] = record

    def make_ready(self, record: Record) -> None:
        """Put a record that is already in `ready` into the heaps."""
        self.order.push(record.rank, record.id)
        heappush(self.ages, record.id)
        if self.order.size > 2 * len(self.ready) + _SLACK:
            self.order = Lanes()
            for id in sorted(self.ready):
                self.order.push(self.ready[id].rank, id)
        if len(self.ages) > 2 * len(self.ready) + _SLACK:
            self.ages = sorted(self.ready)

    def is_paused(self, now: int) -> bool:
        if self.paused and self.paused_until is not None and self.paused_until <= now:
            self.paused, self.paused_until = False, None
        return self.paused

    def next_moment(self, now: int) -> int | None:
        """When something may be takable, once what is due was applied."""
        if self.is_paused(now):
            return self.paused_until
        if self.ready:
            return now
        return self.due.next()  # not after now if the bound was reached: then something is due still

    def release_key(self, record: Record) -> None:
        if record.key is not None and self.keys.get(record.key) is record:
            del self.keys[record.key]

    def clear(self) -> None:
        """Let go of all records.

        They are not tracked by the garbage collector (a million of them would slow every collection down), so the
        circle record -> line -> record is broken by hand.
        """
        for records in self.states.values():
            records.clear()
        self.keys.clear()


def older(line: Line, state: State, before: int | None, limit: int | None) -> list[int]:
    """The ids of records in a state since before a moment: those that ended by that end, others by id."""
    records = line.states[state]
    if state not in ("dead", "done"):
        ids = sorted(id for id, record in records.items() if before is None or record.created_at < before)
        return ids[:limit]
    # A record comes into its state at the end of the dict, so this goes by the moment; equal moments are put in order.
    ended: list[tuple[int, int]] = []
    for id, record in records.items():
        moment = record.ended_at or 0
        if (before is not None and moment >= before) or (limit is not None and _enough(ended, limit, moment)):
            break
        ended.append((moment, id))
    return [id for _, id in sorted(ended)[:limit]]


def _enough(ended: list[tuple[int, int]], limit: int, moment: int) -> bool:
    return len(ended) >= limit and (not limit or moment > ended[limit - 1][0])


def pick(line: Line, count: int, max_cost: int | None) -> list[Record]:
    """The first ready records, in order, while their summed cost fits."""
    picked: list[Record] = []
    ready, order = line.ready, line.order
    while len(picked) < count and (head := order.first()) is not None:
        rank, lane, id = head
        record = ready.get(id)
        if record is not None and record.rank == rank:
            if max_cost is not None:
                if record.cost > max_cost:
                    break
                max_cost -= record.cost
            del ready[id]  # so that a second hint at the same record is stale
            picked.append(record)
        order.pop(lane)
    return picked


def head(line: Line) -> Record | None:
    """The record that `pick` would give first."""
    while (first := line.order.first()) is not None:
        rank, lane, id = first
        record = line.ready.get(id)
        if record is not None and record.rank == rank:
            return record
        line.order.pop(lane)
    return None


def lease_out(line: Line, records: Iterable[Record], now: int, until: int, worker: str) -> list[Job]:
    jobs = []
    taken = line.states["taken"]
    name = line.name
    for record in records:
        record.state, record.due, record.worker, record.taken_at = "taken", until, worker, now
        id, attempts, waiters = record.id, record.attempts, record.waiters
        taken[id] = record
        jobs.append(
            Job(
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
                len(waiters) if waiters else 0,
                Lease(name, id, attempts),
                record.fresh_at,
                record.crashes,
            )
        )
    line.due.watch(until, tuple([job.id for job in jobs]))
    return jobs


def count(line: Line, now: int) -> QueueStats:
    ages, ready = line.ages, line.ready
    while ages and ages[0] not in ready:
        heappop(ages)
    paused = line.is_paused(now)
    states = line.states
    return QueueStats(
        total=sum(len(states[state]) for state in STATES if state != "done"),
        ready=len(ready),
        taken=len(states["taken"]),
        delayed=len(states["delayed"]),
        dead=len(states["dead"]),
        oldest_age=max(0, now - ready[ages[0]].created_at) / 1000 if ages else 0.0,
        paused=paused,
        paused_until=line.paused_until,
        **line.counts,
    )


def waiters_after(record: Record, after: int | None) -> tuple[bytes, ...]:
    """Those who wait for it but for the first `after`; nobody where none are asked for."""
    return () if after is None or record.waiters is None else tuple(record.waiters[after:])


def describe(record: Record) -> JobInfo:
    return JobInfo(
        id=record.id,
        queue=record.line.name,
        state=record.state,
        data=record.data,
        rank=record.rank,
        cost=record.cost,
        key=record.key,
        attempts=record.attempts,
        created_at=record.created_at,
        start_time=record.start_time,
        prev_start_time=record.prev_start_time,
        waiters=len(record.waiters or ()),
        keep_for=record.keep_for,
        worker=record.worker,
        taken_at=record.taken_at,
        lease_until=record.due if record.state == "taken" else None,
        ended_at=record.ended_at,
        reason=record.reason,
        result=record.result,
        fresh_at=record.fresh_at,
        crashes=record.crashes,
    )
