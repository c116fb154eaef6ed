"""What is written down: one record when a call starts, one when it ends, and notes of what happened outside the store.

Payloads and waiters are not kept, only their size and a checksum: enough to tell one from another. Records are arrays
on disk, so that a field costs no name.
"""

from __future__ import annotations

from typing import Any, Literal
from zlib import crc32

from msgspec import Struct

from accoda.model import Lanes, Lease, NewJob, OnDuplicate, State, What, Why

Kind = Literal["done", "retry", "bury"]
Certainty = Literal["refused", "unknown"]


class Asked(Struct, frozen=True, array_like=True, gc=False):
    """A job to be stored."""

    queue: str
    size: int
    check: int
    rank: float = 0.0
    delay: float | None = None
    start_at: int | None = None
    cost: int = 0
    key: str | None = None
    on_duplicate: OnDuplicate = "keep"
    waiter: int | None = None
    keep_for: float = 0.0
    reports_to: str | None = None
    lane: str | None = None

    @property
    def content(self) -> tuple[str, int, int]:
        """What tells one job from another where no id is known."""
        return (self.queue, self.size, self.check)


class Placed(Struct, frozen=True, array_like=True, gc=False):
    """What became of it."""

    id: int
    what: What
    waiters: int


class Place(Struct, frozen=True, array_like=True, gc=False):
    """Where a job is in a flow. `results`: the checksums of what the nodes before it returned, as it was handed them;
    None where it reads them itself, because they are too large to travel with it."""

    id: str
    node: str
    results: dict[str, int] | None = None


class Taken(Struct, frozen=True, array_like=True, gc=False):
    """A job that was handed out."""

    id: int
    attempts: int
    rank: float
    cost: int
    waiters: int
    size: int
    check: int
    created_at: int
    start_time: int
    tries: int
    crashes: int
    taken_at: int = 0
    key: str | None = None
    flow: Place | None = None
    lane: str | None = None


class Held(Struct, frozen=True, array_like=True, gc=False):
    """A lease."""

    queue: str
    id: int
    attempts: int
    taken_at: int = 0


class Told(Struct, frozen=True, array_like=True, gc=False):
    """An outcome. `counts` and `rank` are those of a retry, `result` is of a job that is done."""

    queue: str
    id: int
    attempts: int
    kind: Kind
    delay: float = 0.0
    at: int | None = None
    waiters: int | None = None
    then: tuple[Asked, ...] = ()
    counts: bool = True
    rank: float | None = None
    taken_at: int = 0
    result: int | None = None


class Denied(Struct, frozen=True, array_like=True, gc=False):
    """A lease that was given back as lost, grown or cancelled."""

    id: int
    attempts: int
    why: Why
    taken_at: int = 0


class Changed(Struct, frozen=True, array_like=True, gc=False):
    """A change. `waiters` is how many its caller had seen."""

    kind: Literal["remove", "cancel", "revive", "start now", "not crashed", "rerank"]
    id: int
    waiters: int | None = None
    queue: str | None = None


class Seen(Struct, frozen=True, array_like=True, gc=False):
    """A job as a look or a page showed it."""

    id: int
    queue: str
    state: State
    attempts: int
    size: int
    check: int
    waiters: int
    crashes: int
    rank: float
    key: str | None = None
    lane: str | None = None


class Start(Struct, frozen=True, array_like=True, gc=False, tag="start"):
    """A call begins. `number` is the client's own. This one stands for all calls of which no more is kept."""

    client: str
    number: int
    at: int
    verb: str = ""

    @property
    def name(self) -> str:
        return self.verb or str(self.__struct_config__.tag)


class Enqueue(Start, frozen=True, gc=False, tag="enqueue"):
    jobs: tuple[Asked, ...] = ()


class Take(Start, frozen=True, gc=False, tag="take"):
    queue: str = ""
    count: int = 0
    lease: float = 0.0
    max_cost: int | None = None


class Settle(Start, frozen=True, gc=False, tag="settle"):
    outcomes: tuple[Told, ...] = ()


class Extend(Start, frozen=True, gc=False, tag="extend"):
    leases: tuple[Held, ...] = ()
    lease: float = 0.0


class Look(Start, frozen=True, gc=False, tag="look"):
    """At an id, at a key of a queue, or at the head of a queue. `after` is None if no waiters were asked for."""

    id: int | None = None
    queue: str | None = None
    key: str | None = None
    after: int | None = None


class Change(Start, frozen=True, gc=False, tag="change"):
    changes: tuple[Changed, ...] = ()


class Browse(Start, frozen=True, gc=False, tag="browse"):
    """Its answer is a `LookEnd` too."""


class Write(Start, frozen=True, gc=False, tag="write"):
    document: str = ""
    version: int | None = None


class OfQueue(Start, frozen=True, gc=False, tag="queue"):
    """`pause` or `purge`."""

    queue: str = ""
    state: State | None = None
    until: int | None = None


class SetLanes(Start, frozen=True, tag="set_lanes"):
    """`rules` is None where they are taken away."""

    queue: str = ""
    rules: Lanes | None = None


class End(Struct, frozen=True, array_like=True, gc=False, tag="end"):
    """The call answered. This one stands for all answers of which no more is kept; `count` is a number it gave."""

    client: str
    number: int
    at: int
    count: int = 0


class Failed(Struct, frozen=True, array_like=True, gc=False, tag="failed"):
    """The call raised: it was "refused" for sure and changed nothing, or it is "unknown" what it did."""

    client: str
    number: int
    at: int
    certainty: Certainty
    error: str


class EnqueueEnd(End, frozen=True, gc=False, tag="enqueue+"):
    placed: tuple[Placed, ...] = ()


class TakeEnd(End, frozen=True, gc=False, tag="take+"):
    taken: tuple[Taken, ...] = ()


class RefusedEnd(End, frozen=True, gc=False, tag="refused+"):
    """The answer of `settle` or `extend`."""

    denied: tuple[Denied, ...] = ()


class LookEnd(End, frozen=True, gc=False, tag="look+"):
    seen: tuple[Seen, ...] = ()
    waiters: tuple[int, ...] = ()
    moment: int = 0  # by the store's clock


class Note(Struct, frozen=True, array_like=True, tag="note"):
    """A fact from outside the store."""

    client: str
    at: int
    kind: str
    fields: dict[str, Any]


AnyStart = Start | Enqueue | Take | Settle | Extend | Look | Change | Browse | Write | OfQueue | SetLanes
AnyEnd = End | Failed | EnqueueEnd | TakeEnd | RefusedEnd | LookEnd
Record = AnyStart | AnyEnd | Note


def asked(job: NewJob) -> Asked:
    data = job.data
    if (
        job.key is None
        and job.delay is None
        and job.start_at is None
        and not job.cost
        and not job.keep_for
        and job.lane is None
    ):
        return Asked(job.queue, len(data), crc32(data), job.rank)  # the usual one, at half the price
    return Asked(
        job.queue, len(data), crc32(data), job.rank, job.delay, job.start_at, job.cost, job.key, job.on_duplicate,
        None if job.waiter is None else crc32(job.waiter), job.keep_for, job.reports_to, job.lane,
    )  # fmt: skip


def held(lease: Lease) -> Held:
    return Held(lease.queue, lease.id, lease.attempts, lease.taken_at)
