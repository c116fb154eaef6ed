"""Jobs and outcomes as the texts that the scripts take, and back.

`lua/parts/record.lua` shows a record, `lua/parts/add.lua` the arguments of a new job, `lua/settle.lua` an outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Struct, msgpack, structs

from accoda.model import (
    Bury,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    QueueStats,
    Retry,
    State,
    What,
    clean,
)
from accoda.storage.redis.connection import Argument

_MODES = {"keep": "k", "replace": "r", "attach": "a"}
_WHATS: dict[str, What] = {"c": "created", "k": "kept", "r": "replaced", "a": "attached"}


def id_text(id: int) -> str:
    """As wide as any id, so that texts sort as the numbers do."""
    return f"{id:016d}"


def rank_text(rank: float) -> str:
    """Exact, and short where it can be: it is stored with every waiting job."""
    whole = int(rank)
    return str(whole) if whole == rank and -1_000_000_000 < whole < 1_000_000_000 else repr(float(rank))


# -- new jobs


class Sealed(Struct, array_like=True, frozen=True):
    """A job on its way to another shard, whose tag is `tag`."""

    tag: str
    queue: str
    how: str
    rank: str
    rest: list[bytes]


def job_texts(job: NewJob) -> tuple[str, str, list[bytes]]:
    """The arguments of one job; the first lacks the queue's number, which is put before it."""
    start = ""
    if job.delay is not None:
        start = f"+{round(job.delay * 1000)}"
    elif job.start_at is not None:
        start = f"@{job.start_at}"
    rank = rank_text(job.rank)
    cost = str(job.cost) if job.cost else ""
    keep = repr(float(job.keep_for)) if job.keep_for else ""
    if job.key is None:
        how = f" -{start}" if start or keep else ""
        return how, rank, [f"{cost},{keep},\0".encode() + job.data]
    key = job.key.encode()
    waiter = b"" if job.waiter is None else b"=" + job.waiter
    tail = b"%b,%b,%b\0%b" % (cost.encode(), keep.encode(), key, job.data)
    return f" {_MODES[job.on_duplicate]}{start}", rank, [tail, key, waiter]


def jobs_arguments(jobs: Sequence[NewJob], names: list[str], args: list[Argument]) -> None:
    """Add the jobs' arguments to `args`, and their queues to `names`."""
    numbers = {name: str(number) for number, name in enumerate(names, 1)}
    for job in jobs:
        queue = job.queue
        number = numbers.get(queue)
        if number is None:
            names.append(queue)
            number = numbers[queue] = str(len(names))
        if job.key is None and job.delay is None and job.start_at is None and not job.keep_for:  # the usual kind
            args.append(number)
            args.append(rank_text(job.rank))
            args.append((b"%d,,\0" % job.cost if job.cost else b",,\0") + job.data)
        else:
            how, rank, rest = job_texts(job)
            args += (number + how, rank, *rest)


def seal(tag: str, job: NewJob) -> bytes:
    packed = msgpack.encode(Sealed(tag, job.queue, *job_texts(job)))
    return b"%d:%b" % (len(packed), packed)


def unseal(text: bytes) -> list[Sealed]:
    jobs = []
    while text:
        size, _, rest = text.partition(b":")
        jobs.append(msgpack.decode(rest[: int(size)], type=Sealed))
        text = rest[int(size) :]
    return jobs


def sealed_arguments(jobs: Sequence[Sealed]) -> tuple[list[str], list[Argument]]:
    names: list[str] = []
    args: list[Argument] = []
    for job in jobs:
        if job.queue not in names:
            names.append(job.queue)
        args += (f"{names.index(job.queue) + 1}{job.how}", job.rank, *job.rest)
    return names, args


def enqueued(answer: bytes, count: int, step: int) -> list[Enqueued]:
    """What `enqueue` answered, for each job."""
    if len(answer) == 16:
        first = int(answer)
        return [Enqueued(id, "created", 0) for id in range(first, first + count * step, step)]
    said = answer.decode().split(",")
    return [Enqueued(int(each[:16]), _WHATS[each[16]], int(each[17:])) for each in said]


# -- outcomes


def outcome_arguments(outcome: Outcome, queue: int, args: list[Argument]) -> None:
    lease = outcome.lease
    id, attempts = f"{lease.id:016d}", lease.attempts
    if type(outcome) is Done:
        if outcome.result is None and outcome.waiters is None and not outcome.then:
            args += (f"{queue}d", id, attempts)
            return
        result = b"" if outcome.result is None else b"=" + outcome.result
        waiters = "" if outcome.waiters is None else str(outcome.waiters)
        args += (f"{queue}f", id, attempts, waiters, result, len(outcome.then))
    elif isinstance(outcome, Retry):
        start = f"+{round(outcome.delay * 1000)}" if outcome.at is None else f"@{outcome.at}"
        args += (f"{queue}r", id, attempts, start, clean(outcome.reason))
    elif isinstance(outcome, Bury):
        if outcome.then:
            args += (f"{queue}p", id, attempts, clean(outcome.reason), len(outcome.then))
        else:
            args += (f"{queue}b", id, attempts, clean(outcome.reason))


# -- what comes back


def taken_jobs(queue: str, reply: list[bytes]) -> tuple[list[Job], list[bytes]]:
    """What `take` answered: record, rank, record, rank, ..., waiters and those that crashed or began afresh.

    Second, what each record begins with that cannot be read.
    """
    try:
        return _taken_jobs(queue, reply), []
    except ValueError:
        return _readable_jobs(queue, reply)


def _readable_jobs(queue: str, reply: list[bytes]) -> tuple[list[Job], list[bytes]]:
    """The same record by record, so that one that is damaged takes no other along."""
    waited_for, _, afresh = reply[-1].partition(b";")
    nothing = [b"", b""]
    rest: dict[bytes, list[bytes]] = {}
    for at, text in enumerate((waited_for, afresh)):
        for each in text.split(b",") if text else ():
            where, _, what = each.partition(b":")
            rest.setdefault(where, [*nothing])[at] = b"0:" + what
    jobs: list[Job] = []
    unreadable: list[bytes] = []
    for place in range(len(reply) // 2):
        record, rank = reply[2 * place : 2 * place + 2]
        try:
            jobs += _taken_jobs(queue, [record, rank, b";".join(rest.get(b"%d" % place, nothing))])
        except ValueError:
            unreadable.append(record[:16])
    return jobs, unreadable


def _taken_jobs(queue: str, reply: list[bytes]) -> list[Job]:
    waiters: dict[int, int] = {}
    waited_for, _, afresh = reply[-1].partition(b";")
    if waited_for:
        for each in waited_for.split(b","):
            where, _, number = each.partition(b":")
            waiters[int(where)] = int(number)
    jobs = []
    for place in range(len(reply) // 2):
        record = reply[2 * place]
        head, data = record.split(b"\0", 1)
        attempts, created, start, prev, cost, _, key = head[17:].split(b",", 6)
        id, times, created_at = int(head[:16]), int(attempts), int(created)
        jobs.append(
            Job(
                id,
                queue,
                data,
                float(reply[2 * place + 1]),
                int(cost) if cost else 0,
                key.decode(errors="replace") if key else None,
                times,
                created_at,
                int(start) if start else created_at,
                int(prev) if prev else None,
                waiters.get(place, 0),
                Lease(queue, id, times),
            )
        )
    for each in afresh.split(b",") if afresh else ():  # rare, so the others need not be asked
        place, fresh_at, crashes = map(int, each.split(b":"))
        jobs[place] = structs.replace(jobs[place], fresh_at=fresh_at, crashes=crashes)
    return jobs


def described(queue: str, reply: list[bytes | int]) -> JobInfo:
    """What lua/parts/locate.lua describes."""
    state, rank, till, waiters, worker, taken_at, ended_at, reason, result, afresh, record = cast(list[bytes], reply)
    fresh_at, _, crashes = afresh.partition(b",")
    head, data = record.split(b"\0", 1)
    attempts, created, start, prev, cost, keep, key = head[17:].split(b",", 6)
    return JobInfo(
        id=int(head[:16]),
        queue=queue,
        state=cast(State, state.decode()),
        data=data,
        rank=float(rank),
        cost=int(cost or 0),
        key=_text(key) if key else None,
        attempts=int(attempts),
        created_at=int(created),
        start_time=int(start or created),
        prev_start_time=int(prev) if prev else None,
        waiters=int(waiters),
        keep_for=float(keep or 0),
        worker=_text(worker[1:]) if worker else None,
        taken_at=int(taken_at) if taken_at else None,
        lease_until=int(till) if till else None,
        ended_at=int(ended_at) if ended_at else None,
        reason=_text(reason[1:]) if reason else None,
        result=result[1:] if result else None,
        fresh_at=int(fresh_at or 0),
        crashes=int(crashes or 0),
    )


def _text(stored: bytes) -> str:
    """As much of it as is text: what is stored may be damaged."""
    return stored.decode(errors="replace")


def counted(text: bytes) -> QueueStats:
    """What `stats` answered for one queue."""
    *numbers, paused = text.split(b",")
    ready, taken, delayed, dead, done, retried, buried, expired, oldest = map(int, numbers)
    return QueueStats(
        total=ready + taken + delayed + dead,
        ready=ready,
        taken=taken,
        delayed=delayed,
        dead=dead,
        oldest_age=oldest / 1000,
        done=done,
        retried=retried,
        buried=buried,
        expired=expired,
        paused=paused != b"-",
        paused_until=int(paused) if paused not in (b"-", b"") else None,
    )
