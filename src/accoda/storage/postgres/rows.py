"""Between Accoda's records and what goes over the wire: arrays, one for each field, and rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from accoda.model import (
    Bury,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    Peek,
    QueueStats,
    Refused,
    Retry,
    State,
    Stats,
    What,
    clean,
)
from accoda.storage.density import Look, Stretch
from accoda.storage.standing import Survey

_STATES: tuple[State, ...] = ("ready", "delayed", "taken", "dead", "done")  # by their numbers in the tables
STATE_NUMBERS = {name: number for number, name in enumerate(_STATES)}
_WHATS: tuple[What, ...] = ("created", "kept", "replaced", "attached")
_WAYS = {"keep": 0, "replace": 1, "attach": 2}
_KINDS = {Done: 0, Retry: 1, Bury: 2}
_END_OF_IDS = 1 << 63
_MOST_WAITERS = (1 << 31) - 1

Columns = tuple[list[Any], ...]


def to_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def columns(jobs: Sequence[NewJob]) -> Columns:
    """queues, datas, ranks, delays, starts, costs, keeps, keys, ways, guests; empty where all have the default."""
    keys = _unless_default([job.key for job in jobs])
    return (
        [job.queue for job in jobs],
        [job.data for job in jobs],
        _unless_default([float(job.rank) for job in jobs]),
        _unless_default([to_ms(job.delay) for job in jobs]),
        _unless_default([job.start_at for job in jobs]),
        _unless_default([job.cost for job in jobs]),
        _unless_default([job.keep_for for job in jobs]),
        keys,
        [_WAYS[job.on_duplicate] for job in jobs] if keys else [],
        [job.waiter for job in jobs] if keys else [],
    )


def is_ready_at_once(job: NewJob) -> bool:
    """Whether it has no key and waits for no moment."""
    return job.key is None and not job.delay and job.start_at is None


def single(job: NewJob) -> tuple[str, bytes, float, int, float]:
    """What is to be said of such a job: queue, data, rank, cost, keep_for."""
    return job.queue, job.data, float(job.rank), job.cost, float(job.keep_for)


def _unless_default(values: list[Any]) -> list[Any]:
    """The values, or nothing where each is None or zero, which the server then fills in."""
    return values if any(value is not None and value != 0 for value in values) else []


def enqueued(ids: Sequence[int], whats: Sequence[int] | None, crowds: Sequence[int] | None) -> list[Enqueued]:
    if whats is None or crowds is None:
        return [Enqueued(id, "created", 0) for id in ids]
    return [Enqueued(id, _WHATS[what], crowd) for id, what, crowd in zip(ids, whats, crowds, strict=True)]


def jobs_taken(queue: str, rows: Iterable[Any]) -> list[Job]:
    return [
        Job(
            id, queue, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters,
            Lease(queue, id, attempts), fresh_at, crashes,
        )
        for id, data, rank, cost, key, attempts, created_at, start_time, prev_start_time, waiters, fresh_at, crashes
        in rows
    ]  # fmt: skip


def is_plain(outcomes: Sequence[Outcome]) -> bool:
    """Whether all are Done without result and follow-ups, in one queue, each for another job."""
    queue = outcomes[0].lease.queue
    for outcome in outcomes:
        if type(outcome) is not Done or outcome.then or outcome.result is not None or outcome.lease.queue != queue:
            return False
    return len({outcome.lease.id for outcome in outcomes}) == len(outcomes)


def counted(waiters: int | None) -> int | None:
    """A number of waiters that fits into a column: nobody has more."""
    return None if waiters is None else max(-1, min(waiters, _MOST_WAITERS))


def storable(id: int) -> int:
    """An id that fits into a column; one that nobody has for all others."""
    return id if 0 <= id < _END_OF_IDS else 0


def lease_columns(leases: Iterable[Lease]) -> tuple[list[int], list[int], list[str]]:
    """ids, tokens, queues. A queue name that the server could not read is no queue's."""
    held = list(leases)
    return (
        [storable(lease.id) for lease in held],
        [lease.attempts if 0 <= lease.attempts < _END_OF_IDS else -1 for lease in held],
        [lease.queue if lease.queue.isprintable() else "" for lease in held],
    )


def outcome_columns(outcomes: Sequence[Outcome]) -> Columns:
    """kinds, seen, delays, starts, reasons, results, then `then_of` and the columns of the follow-ups."""
    followed = [(place, job) for place, outcome in enumerate(outcomes, 1) for job in getattr(outcome, "then", ())]
    return (
        [_KINDS[type(outcome)] for outcome in outcomes],
        [counted(getattr(outcome, "waiters", None)) for outcome in outcomes],
        [to_ms(getattr(outcome, "delay", None)) for outcome in outcomes],
        [getattr(outcome, "at", None) for outcome in outcomes],
        [None if type(outcome) is Done else clean(outcome.reason) for outcome in outcomes],  # type: ignore[union-attr]
        [getattr(outcome, "result", None) for outcome in outcomes],
        [place for place, _ in followed],
        *columns([job for _, job in followed]),
    )


def refused(outcomes: Sequence[Outcome], verdicts: Sequence[int] | None) -> list[Refused]:
    if verdicts is None:
        return []
    return [
        Refused(outcome.lease, "lost" if verdict == 1 else "grown")
        for outcome, verdict in zip(outcomes, verdicts, strict=True)
        if verdict
    ]


def job_info(row: Any) -> JobInfo:
    values = list(row)  # in the order of JobInfo's fields
    values[2] = _STATES[values[2]]
    return JobInfo(*values)


def peek(row: Any) -> Peek:
    at, guests, *values = row
    return Peek(at) if values[0] is None else Peek(at, job_info(values), tuple(guests or ()))


def survey(row: Any) -> Survey | None:
    at, ahead, newer, behind, ready, ranks, last_rank, *values = row
    if values[0] is None:
        return None
    return Survey(at, job_info(values), ahead, newer, behind or 0, int(ready or 0), ranks or (), last_rank or 0.0)


def look_columns(looks: Sequence[Look]) -> Columns:
    return (
        [float(look.rank) for look in looks],
        [look.id for look in looks],
        [look.number for look in looks],
        [look.down for look in looks],
    )


def stretches(rows: Iterable[Any]) -> list[Stretch]:
    return [
        Stretch(list(zip(sorts, ids, strict=True)), far, beyond) if sorts else Stretch(())
        for sorts, ids, far, beyond in rows
    ]


def stats(rows: Iterable[Any]) -> Stats:
    queues = {}
    for now, name, ready, taken, delayed, dead, done, retried, buried, expired, paused, until, oldest in rows:
        queues[name] = QueueStats(
            total=ready + taken + delayed + dead,
            ready=ready,
            taken=taken,
            delayed=delayed,
            dead=dead,
            oldest_age=0.0 if oldest is None else max(0, now - oldest) / 1000,
            done=done,
            retried=retried,
            buried=buried,
            expired=expired,
            paused=paused,
            paused_until=until if paused else None,
        )
    return Stats(queues)
