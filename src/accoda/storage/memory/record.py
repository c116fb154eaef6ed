"""The record of a job in memory, and how others see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.model import Job, JobInfo, Lease, State

if TYPE_CHECKING:
    from accoda.storage.memory.queue import MemoryQueue


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
    lane: str | None = None
    sort: float = 0.0  # ready: its turn in a fair line, else its rank
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

    @property
    def place(self) -> tuple[float, int]:
        """What orders the jobs of a lane, and those of a line without turns."""
        return self.rank, self.id


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
        record.lane,
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
        lane=record.lane,
        turn=record.sort if record.state == "ready" and record.sort != record.rank else None,
    )
