"""What is stored about a job in memory, for people to look at."""

from __future__ import annotations

from accoda.model import JobInfo
from accoda.storage.memory.queue import Record


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
