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


class Alike(Struct, frozen=True):
    """Plain jobs of one queue and one cost, as `line_up` takes them."""

    queue: str
    rank: str
    cost: str
    args: list[Argument]


def alike(jobs: Sequence[NewJob]) -> Alike | None:
    """The jobs as `line_up` takes them: nearly always. None: some are of another kind."""
    first = jobs[0]
    queue, rank, cost, one_rank = first.queue, first.rank, first.cost, True
    for job in jobs:
        if job.key is not None or job.delay is not None or job.start_at is not None or job.keep_for:
            return None
        if job.queue != queue or job.cost != cost:
            return None
        if job.rank != rank:
            one_rank = False
    said = str(cost) if cost else ""
    if one_rank:
        return Alike(queue, rank_text(rank), said, [job.data for job in jobs])
    return Alike(queue, "", said, [text for job in jobs for text in (rank_text(job.rank), job.data)])


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
    """What `take` answered: the records, their ranks, and the waiters and those that crashed or began afresh.

    Second, what each record begins with that cannot be read.
    """
    *records, ranks, rest = reply
    try:
        return _taken_jobs(queue, records, ranks, rest), []
    except ValueError:
        return _readable_jobs(queue, records, ranks, rest)


def all_plain(reply: list[bytes]) -> bool:
    """Whether `take` says that it gave plain jobs only, and some."""
    return reply[-1] == b"p"


def _readable_jobs(queue: str, records: list[bytes], ranks: bytes, rest: bytes) -> tuple[list[Job], list[bytes]]:
    """The same record by record, so that one that is damaged takes no other along."""
    waited_for, _, afresh = rest.removeprefix(b"p").partition(b";")
    nothing = [b"", b""]
    known: dict[bytes, list[bytes]] = {}
    for at, text in enumerate((waited_for, afresh)):
        for each in text.split(b",") if text else ():
            where, _, what = each.partition(b":")
            known.setdefault(where, [*nothing])[at] = b"0:" + what
    of_each = ranks.split(b",")
    jobs: list[Job] = []
    unreadable: list[bytes] = []
    for place, record in enumerate(records):
        rank = of_each[place] if len(of_each) > 1 else ranks
        try:
            jobs += _taken_jobs(queue, [record], rank, b";".join(known.get(b"%d" % place, nothing)))
        except ValueError:
            unreadable.append(record[:16])
    return jobs, unreadable


def _taken_jobs(queue: str, records: list[bytes], ranks: bytes, rest: bytes) -> list[Job]:
    """This runs for every job, so a plain one (see lua/take.lua) is told by a look at what follows its id. That is the
    same for jobs that were stored together, so it is mostly read once for all of them."""
    jobs: list[Job] = []
    common, of_each = 0.0, None
    if b"," in ranks:
        of_each = list(map(float, ranks.split(b",")))
    elif ranks:
        common = float(ranks)
    plain, created_at = None, 0
    for place, record in enumerate(records):
        if record[16:38] != plain:
            if record[16:19] != b"p0," or record[32:38] != b",,,,,\0":
                jobs.append(_taken_job(queue, record, common if of_each is None else of_each[place]))
                continue
            plain, created_at = record[16:38], int(record[19:32])
        id = int(record[:16])
        rank = common if of_each is None else of_each[place]
        lease = Lease(queue, id, 0)
        jobs.append(Job(id, queue, record[38:], rank, 0, None, 0, created_at, created_at, None, 0, lease))
    if rest and rest != b"p":
        _add_the_rest(jobs, rest)
    return jobs


def _taken_job(queue: str, record: bytes, rank: float) -> Job:
    head, data = record.split(b"\0", 1)
    attempts, created, start, prev, cost, _, key = head[17:].split(b",", 6)
    id, times, created_at = int(head[:16]), int(attempts), int(created)
    return Job(
        id,
        queue,
        data,
        rank,
        int(cost) if cost else 0,
        key.decode(errors="replace") if key else None,
        times,
        created_at,
        int(start) if start else created_at,
        int(prev) if prev else None,
        0,
        Lease(queue, id, times),
    )


def _add_the_rest(jobs: list[Job], rest: bytes) -> None:
    """What only few jobs have: waiters, crashes, a new beginning."""
    waited_for, _, afresh = rest.partition(b";")
    for each in waited_for.split(b",") if waited_for else ():
        place, number = map(int, each.split(b":"))
        jobs[place] = structs.replace(jobs[place], waiters=number)
    for each in afresh.split(b",") if afresh else ():
        place, fresh_at, crashes = map(int, each.split(b":"))
        jobs[place] = structs.replace(jobs[place], fresh_at=fresh_at, crashes=crashes)


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
