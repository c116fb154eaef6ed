"""Records to the rows that the server's functions take, and their answers to records. No I/O here.

Bytes: the server's Lua keeps bytes and text alike as strings and, in 2.x, gives both back as msgpack strings; 3.x gives
bytes back as such. So a field that holds bytes is decoded as `Raw`, and its header is cut off here, whichever it is.
Numbers: the server keeps whole numbers as integers, so ranks are decoded as floats; integers are exact up to 2**53.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.msgpack import Decoder

from accoda.model import (
    STATES,
    Bury,
    Document,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    QueueStats,
    Refused,
    Retry,
    State,
    What,
    clean,
)

# The server's numbers for states: keep in step with 1_transaction.lua.
STATE_NUMBERS: dict[State, int] = {"ready": 0, "delayed": 1, "taken": 2, "dead": 3, "done": 4}
_STATE_NAMES = {number: name for name, number in STATE_NUMBERS.items()}
assert set(STATES) == set(STATE_NUMBERS)
_MODES = {"keep": 0, "replace": 1, "attach": 2}
_WHAT: tuple[What, ...] = ("kept", "replaced", "attached")
_TAKEN = STATE_NUMBERS["taken"]
_DONE, _RETRY, _BURY = 0, 1, 2

Row = tuple[Any, ...]


class JobRow(Struct, array_like=True, gc=False):
    """A job's tuple: see install.lua."""

    id: int
    queue: int
    state: int
    data: Raw
    rank: float
    cost: int
    key: str | None
    attempts: int
    created_at: int
    start_time: int
    prev_start_time: int | None
    waiters: int
    keep_for: float
    worker: str | None
    taken_at: int | None
    sort: float
    ended_at: int | None
    reason: str | None
    result: Raw
    fresh_at: int = 0  # these two are missing where both are 0
    crashes: int = 0


class DocumentRow(Struct, array_like=True, gc=False):
    name: str
    value: Raw
    version: int
    expires_at: int


class StatsRow(Struct, array_like=True, gc=False):
    name: str
    ready: int
    delayed: int
    taken: int
    dead: int
    done: int
    retried: int
    buried: int
    expired: int
    paused: bool
    paused_until: int | None
    oldest_age: int


# What a function gives back is the only element of a list. See the headers of the Lua files.
INT: Decoder[Any] = Decoder(tuple[int])
FLAG: Decoder[Any] = Decoder(tuple[bool])
INTS: Decoder[Any] = Decoder(tuple[list[int]])
PAIR: Decoder[Any] = Decoder(tuple[tuple[bool, int]])
ENQUEUED: Decoder[Any] = Decoder(tuple[tuple[int, list[tuple[int, int, int, int]]]])
REFUSED: Decoder[Any] = Decoder(tuple[list[tuple[int, bool]]])
JOBS: Decoder[Any] = Decoder(tuple[list[JobRow]])
FOUND: Decoder[Any] = Decoder(tuple[list[Raw]])
WAITERS: Decoder[Any] = Decoder(tuple[list[Raw]])
LOOK: Decoder[Any] = Decoder(tuple[tuple[bool, float | None]])
HEARD: Decoder[Any] = Decoder(tuple[tuple[int, list[str]]])
STATS: Decoder[Any] = Decoder(tuple[list[StatsRow]])
DOCUMENTS: Decoder[Any] = Decoder(tuple[list[DocumentRow]])
PURGED: Decoder[Any] = Decoder(tuple[tuple[int, int, bool]])

_a_job = Decoder(JobRow)
_a_name = Decoder(str)


class Names:
    """The queues that a call names: each is sent once, rows hold its position."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        return self._places.setdefault(name, len(self._places) + 1)

    def list(self) -> list[str]:
        return list(self._places)


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def rows_of_jobs(names: Names, jobs: Iterable[NewJob]) -> list[Row]:
    rows: list[Row] = []
    place = names.place
    for job in jobs:
        plain = job.delay is None and job.start_at is None and job.key is None and not job.cost and not job.keep_for
        rows.append((place(job.queue), job.data, float(job.rank)) if plain else _whole_row(names, job))
    return rows


def _whole_row(names: Names, job: NewJob) -> Row:
    return (
        names.place(job.queue),
        job.data,
        float(job.rank),
        job.cost,
        None if job.delay is None else milliseconds(job.delay),
        job.start_at,
        job.keep_for,
        job.key,
        _MODES[job.on_duplicate],
        job.waiter,
    )


def enqueued(jobs: Sequence[NewJob], first: int, joined: Iterable[tuple[int, int, int, int]]) -> list[Enqueued]:
    """Ids are given in a row to those that did not join a job that was there."""
    others = {position: Enqueued(id, _WHAT[mode], waiters) for position, id, mode, waiters in joined}
    answers = []
    for position, job in enumerate(jobs, 1):
        answer = others.get(position) if others else None
        if answer is None:
            answer = Enqueued(first, "created", 0 if job.waiter is None else 1)
            first += 1
        answers.append(answer)
    return answers


def taken(queue: str, rows: Iterable[JobRow]) -> list[Job]:
    return [
        Job(
            row.id, queue, bytes_of(row.data), row.rank, row.cost, row.key, row.attempts, row.created_at,
            row.start_time, row.prev_start_time, row.waiters, Lease(queue, row.id, row.attempts), row.fresh_at,
            row.crashes,
        )
        for row in rows
    ]  # fmt: skip


def rows_of_outcomes(names: Names, outcomes: Iterable[Outcome]) -> tuple[list[Row], list[Row]]:
    """The outcomes, and the follow-ups of each with its position."""
    rows: list[Row] = []
    follow_ups: list[Row] = []
    place = names.place
    for outcome in outcomes:
        lease = outcome.lease
        head = (place(lease.queue), lease.id, lease.attempts)
        match outcome:
            case Done():
                if outcome.then:
                    follow_ups.append((len(rows) + 1, rows_of_jobs(names, outcome.then)))
                if outcome.waiters is None and outcome.result is None:
                    rows.append(head)
                else:
                    rows.append((*head, _DONE, outcome.waiters, outcome.result))
            case Retry():
                rows.append((*head, _RETRY, milliseconds(outcome.delay), outcome.at, clean(outcome.reason)))
            case Bury():
                rows.append((*head, _BURY, clean(outcome.reason)))
    return rows, follow_ups


def refused(outcomes: Sequence[Outcome], answer: Iterable[tuple[int, bool]]) -> list[Refused]:
    return [Refused(outcomes[position - 1].lease, "grown" if grown else "lost") for position, grown in answer]


def rows_of_leases(names: Names, leases: Iterable[Lease]) -> list[Row]:
    return [(names.place(lease.queue), lease.id, lease.attempts) for lease in leases]


def info(queue: str, row: JobRow) -> JobInfo:
    return JobInfo(
        row.id, queue, _STATE_NAMES[row.state], bytes_of(row.data), row.rank, row.cost, row.key, row.attempts,
        row.created_at, row.start_time, row.prev_start_time, row.waiters, row.keep_for, row.worker, row.taken_at,
        int(row.sort) if row.state == _TAKEN else None, row.ended_at, row.reason, bytes_or_none(row.result),
        row.fresh_at, row.crashes,
    )  # fmt: skip


def found(answer: Sequence[Raw]) -> JobInfo | None:
    if not answer:
        return None
    job, queue = answer
    return info(_a_name.decode(queue), _a_job.decode(job))


def stats(row: StatsRow) -> QueueStats:
    return QueueStats(
        total=row.ready + row.taken + row.delayed + row.dead,
        ready=row.ready,
        taken=row.taken,
        delayed=row.delayed,
        dead=row.dead,
        oldest_age=row.oldest_age / 1000,
        done=row.done,
        retried=row.retried,
        buried=row.buried,
        expired=row.expired,
        paused=row.paused,
        paused_until=row.paused_until,
    )


def document(row: DocumentRow) -> Document:
    return Document(row.name, bytes_of(row.value), row.version, row.expires_at or None)


def bytes_of(raw: Raw) -> bytes:
    """The content of a msgpack string or binary."""
    whole = bytes(raw)
    first = whole[0]
    if first < 0xC0:  # a short string: its length is in this byte
        return whole[1:]
    return whole[_HEADER_SIZES[first] :]


def bytes_or_none(raw: Raw) -> bytes | None:
    return None if bytes(raw) == b"\xc0" else bytes_of(raw)


_HEADER_SIZES = {0xD9: 2, 0xC4: 2, 0xDA: 3, 0xC5: 3, 0xDB: 5, 0xC6: 5}
