"""Records to the rows that the server's functions take, and their answers to records. No I/O here.

Bytes: the server's Lua keeps bytes and text alike as strings and, in 2.x, gives both back as msgpack strings; 3.x gives
bytes back as such. So a field that holds bytes is decoded as `Raw`, and its header is cut off here, whichever it is.
Numbers: the server keeps whole numbers as integers, so ranks are decoded as floats; integers are exact up to 2**53.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import MsgspecError, Raw, Struct
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
    Peek,
    QueueStats,
    Refused,
    Retry,
    State,
    What,
    clean,
)
from accoda.storage.density import Stretch
from accoda.storage.standing import Survey

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


class WaiterRow(Struct, array_like=True, gc=False):
    job: int
    n: int
    data: Raw


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
STRETCHES: Decoder[Any] = Decoder(tuple[list[tuple[list[float], list[int], int, float | None]]])
FOUND: Decoder[Any] = Decoder(tuple[list[Raw]])
ANY: Decoder[Any] = Decoder(tuple[Raw])
LOOK: Decoder[Any] = Decoder(tuple[tuple[bool, float | None, bool, bool]])
HEARD: Decoder[Any] = Decoder(tuple[tuple[int, list[str]]])
PURGED: Decoder[Any] = Decoder(tuple[tuple[int, int, bool]])

_a_job = Decoder(JobRow)
_waiters = Decoder(list[WaiterRow])
_waiters_of_bytes = Decoder(list[tuple[int, int, bytes]])
_a_name = Decoder(str)
_a_row: Decoder[list[Raw]] = Decoder(list[Raw])
_an_int = Decoder(int)
_a_rank = Decoder(float)
_ranks: Decoder[list[float]] = Decoder(list[float])

_UNREADABLE = (MsgspecError, UnicodeDecodeError, ValueError)


class Rows:
    """Decodes a list of rows of which some may be damaged: these are left out, so that they take no other along."""

    def __init__(self, kind: type) -> None:
        self._all: Decoder[Any] = Decoder(tuple[list[kind]])  # type: ignore[valid-type]
        self._one: Decoder[Any] = Decoder(kind)

    def decode(self, data: bytes | memoryview) -> tuple[Found]:
        try:
            return (Found(self._all.decode(data)[0], []),)
        except _UNREADABLE:
            found = Found([], [])
        for raw in FOUND.decode(data)[0]:
            try:
                found.rows.append(self._one.decode(raw))
            except _UNREADABLE:
                found.unreadable.append(raw)
        return (found,)


class Found(Struct):
    """Rows, and what could not be read as one."""

    rows: list[Any]
    unreadable: list[Raw]

    @property
    def damaged_ids(self) -> list[int]:
        """The ids of the jobs among the unreadable rows."""
        return [_an_int.decode(_a_row.decode(raw)[0]) for raw in self.unreadable]


JOBS: Any = Rows(JobRow)
STATS: Any = Rows(StatsRow)
DOCUMENTS: Any = Rows(DocumentRow)


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


def taken(queue: str, found: Found) -> tuple[list[Job], list[int]]:
    """The jobs, and the ids of those that cannot be read."""
    try:
        return _taken(queue, found.rows), found.damaged_ids if found.unreadable else []
    except ValueError:
        jobs, damaged = [], found.damaged_ids
    for row in found.rows:
        try:
            jobs += _taken(queue, (row,))
        except ValueError:
            damaged.append(row.id)
    return jobs, damaged


def _taken(queue: str, rows: Iterable[JobRow]) -> list[Job]:
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
                if outcome.then:
                    follow_ups.append((len(rows) + 1, rows_of_jobs(names, outcome.then)))
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


def infos(queue: str, found: Found) -> tuple[list[JobInfo], list[int]]:
    """The jobs of a page, and the ids of those that cannot be read."""
    readable, damaged = [], found.damaged_ids
    for row in found.rows:
        try:
            readable.append(info(queue, row))
        except (ValueError, KeyError, OverflowError):
            damaged.append(row.id)
    return readable, damaged


def job_found(answer: Sequence[Raw]) -> tuple[JobInfo | None, bool]:
    """The job, and whether there is one that cannot be read."""
    if not answer:
        return None, False
    try:
        return info(_a_name.decode(answer[1]), _a_job.decode(answer[0])), False
    except (*_UNREADABLE, KeyError, OverflowError):
        return None, True


def peeked(queue: str, answer: Sequence[Raw]) -> tuple[Peek, int | None]:
    """What was found, and the id of the job where it cannot be read."""
    at = _an_int.decode(answer[0])
    if len(answer) == 1:
        return Peek(at), None
    try:
        job = info(queue, _a_job.decode(answer[1]))
    except (*_UNREADABLE, KeyError, OverflowError):
        return Peek(at), _an_int.decode(_a_row.decode(answer[1])[0])
    return Peek(at, job, tuple(waiters(job.id, answer[2]))), None


def surveyed(answer: Sequence[Raw]) -> tuple[Survey | None, bool]:
    """What was seen of a job and its line, and whether there is a job that cannot be read."""
    job, damaged = job_found(answer[1:])
    if job is None:
        return None, damaged
    survey = Survey(_an_int.decode(answer[0]), job, _an_int.decode(answer[3]), _an_int.decode(answer[4]))
    if len(answer) < 9:
        return survey, False
    behind, ready = _an_int.decode(answer[5]), _an_int.decode(answer[6])
    ranks, last = _ranks.decode(answer[7]), _a_rank.decode(answer[8])
    return survey._replace(behind=behind, ready=ready, ranks=ranks, last_rank=last), False


def stretches(found: Sequence[tuple[list[float], list[int], int, float | None]]) -> list[Stretch]:
    return [Stretch(list(zip(ranks, ids, strict=True)), far, beyond) for ranks, ids, far, beyond in found]


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


def documents(found: Found) -> list[Document]:
    """Those that can be read."""
    readable = []
    for row in found.rows:
        try:
            readable.append(Document(row.name, bytes_of(row.value), row.version, row.expires_at or None))
        except ValueError:
            continue  # the next write of this name puts it right
    return readable


def bytes_of(raw: Raw) -> bytes:
    """The content of a msgpack string or binary. Raises ValueError where it is something else."""
    whole = bytes(raw)
    first = whole[0]
    if 0xA0 <= first < 0xC0:  # a short string: its length is in this byte
        return whole[1:]
    size = _HEADER_SIZES.get(first)
    if size is None:
        raise ValueError(f"neither text nor bytes, but a msgpack value that begins with {first:#x}")
    return whole[size:]


def waiters(job: int, raw: Raw) -> list[bytes]:
    """Those who wait for this job, of their tuples. One that is damaged is still one, and counted as such."""
    try:
        return [data for id, _, data in _waiters_of_bytes.decode(raw) if id == job]  # as 3.x tells them
    except MsgspecError:
        return [_waiter(row.data) for row in _waiters.decode(raw) if row.job == job]


def _waiter(raw: Raw) -> bytes:
    try:
        return bytes_of(raw)
    except ValueError:
        return bytes(raw)


def bytes_or_none(raw: Raw) -> bytes | None:
    return None if bytes(raw) == b"\xc0" else bytes_of(raw)


_HEADER_SIZES = {0xD9: 2, 0xC4: 2, 0xDA: 3, 0xC5: 3, 0xDB: 5, 0xC6: 5}
