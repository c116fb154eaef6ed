"""The records that travel between callers and storages. No I/O here.

Durations are seconds; moments are integer milliseconds since the epoch, by the storage's clock.

    enqueue ──► delayed ──start time──► ready ──take──► taken ──Done──► (gone, or done for keep_for)
       └───────────────────────────────►  ▲              │ │ └─Bury──► dead ──revive──► ready
                                          └──lease over──┘ └─Retry──► delayed / ready
                                             attempts+1        attempts+1

A job that would be ready but whose lane is full is held until a place in its lane is free. A job that waits or runs can
be cancelled: it is gone, or cancelled for keep_for.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, TypeVar, cast, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from accoda.errors import InvalidInput
from accoda.limits import COST, DOCUMENT_NAME, KEY, MOMENT, MOST, NAME_RULE, TEXT, allowed, is_name, too_large

if TYPE_CHECKING:
    from typing import Self

    import typing_extensions  # for type checkers, which all know it: a default is new in Python 3.13

    V = typing_extensions.TypeVar("V", default=Any)
else:
    V = TypeVar("V")

State = Literal["ready", "delayed", "held", "taken", "dead", "done", "cancelled"]
OnDuplicate = Literal["keep", "rerank", "replace", "attach"]
What = Literal["created", "kept", "replaced", "attached", "outbox"]
Why = Literal["lost", "grown", "cancelled"]
Order = Literal["line", "id"]

STATES: tuple[State, ...] = get_args(State)
ENDED: tuple[State, ...] = ("dead", "done", "cancelled")
"""The states of a job that holds no key and has no lease."""
CANCELLED_FOR = 60.0
"""Seconds for which a job that was cancelled while it ran is kept at least, so that its worker is told."""
AHEAD_AT_MOST = 10_000
"""How many jobs before another one are counted."""

_END_OF_IDS = 1 << 63
_ON_DUPLICATE = frozenset(get_args(OnDuplicate))
_FREE, _AT_ONCE = 0, 0.0  # the usual cost and keep_for, known by identity
_good_names: set[str] = set()  # names seen to be good, so that the pattern runs once for each name


class _Line(Struct, frozen=True, gc=False):
    queue: str
    data: bytes = b""


class NewJob(_Line, frozen=True, gc=False, kw_only=True):
    """A job to be stored.

    `on_duplicate` says what happens when a job with the same `key` already waits or runs in the queue: `keep` it,
    `rerank` it (give it the new rank, and keep it otherwise), `replace` its data, rank, cost and start time (a run of
    the old data loses its lease), or `attach` `waiter` to it.

    `reports_to` names a flow: every end of the job, and every revival, is reported to it, see `Report`. A job that
    reports has a key.

    `lane` says whom the job belongs to, such as a customer: see `Lanes`.

    >>> NewJob("emails", b"hello", rank=2.0, delay=30).queue
    'emails'
    >>> NewJob("emails", rank=float("nan"))
    Traceback (most recent call last):
        ...
    accoda.errors.InvalidInput: rank: must be a finite number, not nan
    """

    rank: float = 0.0
    delay: float | None = None
    start_at: int | None = None
    cost: int = _FREE
    key: str | None = None
    on_duplicate: OnDuplicate = "keep"
    waiter: bytes | None = None
    keep_for: float = _AT_ONCE
    reports_to: str | None = None
    lane: str | None = None

    def __post_init__(self) -> None:
        # One pass over the usual values; only what looks unusual is examined for the message. This runs for every job,
        # so it makes few calls: a finite number less itself is 0.0, while inf and nan leave nan.
        if self.queue not in _good_names:
            check_queue(self.queue)
        if type(self.data) is not bytes or len(self.data) > allowed.payload:
            _check_data(self.data)
        if type(self.rank) is not float or self.rank - self.rank:
            _check_rank(self.rank)
        if self.delay is not None or self.start_at is not None:
            _check_start(self.delay, self.start_at)
        if self.cost is not _FREE and (type(self.cost) is not int or not 0 <= self.cost <= COST):
            _refuse("cost", "must be an integer from 0 to 2**53", self.cost)
        if self.key is not None or self.waiter is not None or self.on_duplicate != "keep":
            _check_key(self)
        if self.keep_for is not _AT_ONCE and (type(self.keep_for) is not float or self.keep_for):
            check_duration("keep_for", self.keep_for)
        if self.reports_to is not None:
            _check_reports_to(self)
        if self.lane is not None:
            check_lane(self.lane)


class Enqueued(Struct, Generic[V], frozen=True, dict=True):
    """What became of one `NewJob`: the id of the job that now stands for it, and its number of waiters.

    "outbox": it was written to the outbox in a transaction of the caller's, and has no id (0) until that is relayed.

    An app's `enqueue` gives one that knows where the result comes from, and of which type `V` it is.
    """

    id: int
    what: What
    waiters: int = 0

    def come_from(self, source: ResultSource, type: Any) -> Self:
        """Let its `result` be asked of this source."""
        self.__dict__.update(source=source, result_type=type)
        return self

    @property
    def result_type(self) -> Any:
        """What the handler says that it returns; Any where that is not known."""
        return self.__dict__.get("result_type", Any)

    def in_row(self, id: str) -> Self:
        """Note the row of the outbox that it is in."""
        self.__dict__["outbox_id"] = id
        return self

    @property
    def outbox_id(self) -> str | None:
        """The id (a UUID) of the row of the outbox that it was written to; None: it went to the store at once."""
        return self.__dict__.get("outbox_id")

    def result(self, *, timeout: float | None = None) -> Coroutine[Any, Any, V]:
        """Wait until the job is done, and give what its handler returned: see `App.result`."""
        return self._source().result(self, timeout=timeout)  # type: ignore[no-any-return]

    def _source(self) -> ResultSource:
        source = self.__dict__.get("source")
        if source is None:
            raise InvalidInput("result", f"a storage does not know it; use app.result({self.id}), or enqueue by an app")
        return cast(ResultSource, source)


class SyncEnqueued(Enqueued[V], frozen=True, dict=True):
    """What `app.sync.enqueue` gives: an `Enqueued` whose `result` waits without `await`."""

    def result(self, *, timeout: float | None = None) -> V:  # type: ignore[override]
        """Wait until the job is done, and give what its handler returned: see `App.result`."""
        return self._source().result(self, timeout=timeout)  # type: ignore[no-any-return]


class ResultSource(Protocol):
    """Whom to ask for the result of a job: an app, or its sync face."""

    def result(self, job: Any, /, *, timeout: float | None = None) -> Any: ...


class Lease(Struct, frozen=True, gc=False):
    """The right to run a job until a moment. Its token is `(id, attempts, taken_at)`.

    `attempts` grows on every return, so within the life of a store an old lease never matches. A store that was put
    back from a backup gives ids and attempts again; `taken_at`, the moment of the take by the store's clock, differs.
    """

    queue: str
    id: int
    attempts: int
    taken_at: int


class Job(Struct, frozen=True, gc=False):
    """A taken job. `waiters` is their number when it was taken.

    `tries` counts the retries since the job was enqueued, revived or replaced, except those that say that they do not
    count; `crashes` counts the leases that ended without an outcome since then.
    """

    id: int
    queue: str
    data: bytes
    rank: float
    cost: int
    key: str | None
    attempts: int
    created_at: int
    start_time: int
    prev_start_time: int | None
    waiters: int
    lease: Lease
    tries: int = 0
    crashes: int = 0
    lane: str | None = None


class Done(Struct, frozen=True, gc=False):
    """The job is finished; `then` is enqueued in the same atomic step.

    `waiters` is how many were seen: if there are more by now, the outcome is refused as "grown". None: do not check.
    """

    lease: Lease
    then: Sequence[NewJob] = ()
    result: bytes | None = None
    waiters: int | None = None


class Retry(Struct, frozen=True, gc=False):
    """The job goes back: after `delay` seconds, or at the moment `at`. It keeps its rank unless `rank` gives a new one.

    `counts=False` says that its handler did not fail (it was given back unrun, or its worker left): `attempts` grows,
    `tries` does not. `then` is enqueued in the same atomic step.
    """

    lease: Lease
    delay: float = 0.0
    at: int | None = None
    reason: str = ""
    rank: float | None = None
    counts: bool = True
    then: Sequence[NewJob] = ()

    def __post_init__(self) -> None:
        if self.at is not None and self.delay:
            raise InvalidInput("at", "give either delay or at, not both")
        if self.at is not None:
            check_moment("at", self.at)
        if type(self.delay) is not float or self.delay:
            check_duration("delay", self.delay)
        if self.rank is not None:
            _check_rank(self.rank)


class Bury(Struct, frozen=True, gc=False):
    """The job goes to the dead letters, with the reason; `then` is enqueued in the same atomic step.

    A burial frees the job's key, so a follow-up may have it.
    """

    lease: Lease
    reason: str
    then: Sequence[NewJob] = ()


Outcome = Done | Retry | Bury


ReportKind = Literal["done", "dead", "cancelled", "removed", "revived"]
REPORTS = "accoda.flows"
"""The queue of the jobs that get reports, each under the key that `NewJob.reports_to` names."""
RESULT_IN_REPORT = 32_768
"""Bytes of a result up to which it is in the report itself."""


class Report(Struct, frozen=True, gc=False):
    """What a store tells of a job that has `reports_to`, in the step that ends or revives it.

    A report is a waiter of the job in the queue `REPORTS` whose key is `reports_to`, as if it had been enqueued with
    `on_duplicate="attach"`: it is made if there is none. `removed`: the job is gone, by `Remove` or `purge`, without
    having been done or cancelled; of a dead one this is the second report. `body` is the result of a job that is done
    (empty if `size` says that it is larger than `RESULT_IN_REPORT`, or None: there is none), or the reason of a dead
    one.

    On the wire: kind, id, attempts, moment, size of the result (-1: none) and the job's key, with spaces between them,
    a line feed, the body. A key that reports has no line feed; it may have spaces.

    >>> Report.read(Report("done", 7, 0, 1_000, 2, "pay 1", b"ok").wire())
    Report(kind='done', id=7, attempts=0, at=1000, size=2, key='pay 1', body=b'ok')
    """

    kind: ReportKind
    id: int
    attempts: int
    at: int
    size: int
    key: str
    body: bytes = b""

    def wire(self) -> bytes:
        numbers = f"{self.kind} {self.id} {self.attempts} {self.at} {self.size} {self.key}\n"
        return numbers.encode() + self.body

    @classmethod
    def read(cls, wire: bytes) -> Report:
        head, _, body = wire.partition(b"\n")
        kind, id, attempts, at, size, key = head.decode().split(" ", 5)
        if kind not in _REPORT_KINDS:
            raise ValueError(f"unknown kind of report {kind!r:.40}")
        return cls(cast(ReportKind, kind), int(id), int(attempts), int(at), int(size), key, body)

    @classmethod
    def of(cls, kind: ReportKind, id: int, attempts: int, at: int, key: str, body: bytes | None = None) -> Report:
        """The report of a step. `body` is the result of a job that is done, or the reason of a dead one."""
        size = len(body) if kind == "done" and body is not None else -1
        return cls(kind, id, attempts, at, size, key, body if body is not None and size <= RESULT_IN_REPORT else b"")

    def job(self, flow: str) -> NewJob:
        """What adds it to its flow. No limit holds for its size: it does not come in, it is the store's own."""
        job = NewJob(REPORTS, key=flow, on_duplicate="attach")
        force_setattr(job, "waiter", self.wire())
        return job


_REPORT_KINDS = frozenset(get_args(ReportKind))


class Refused(Struct, frozen=True, gc=False):
    """An outcome or extension that was not applied: the lease is "lost", its waiters have "grown", or the job was
    "cancelled" while it ran."""

    lease: Lease
    why: Why


class _Change(Struct, frozen=True, gc=False):
    """What all changes have in common.

    `waiters` is how many the caller has seen: where there are more by now, the change is not applied. `queue` is the
    job's queue where the caller knows it; some storages find the job faster with it.
    """

    id: int
    waiters: int | None = None
    queue: str | None = None


class Remove(_Change, frozen=True, gc=False):
    """Delete a job in any state. A running one loses its lease. With `waiters`, not if it has ended."""


class Cancel(_Change, frozen=True, gc=False):
    """End a job that waits or runs as cancelled. Its key is free at once.

    It is kept for its `keep_for`, or is gone if that is 0. The `keep_for` of a running job becomes at least
    `CANCELLED_FOR`; its lease is over, and until the record is gone its outcomes and extensions are refused as
    "cancelled".
    """


class Revive(_Change, frozen=True, gc=False):
    """Make a dead job ready again, attempts + 1, tries and crashes 0. It stays dead if another job holds its key."""


class StartNow(_Change, frozen=True, gc=False):
    """Make a delayed job ready now, whatever it waits for: a start time or the pause before a retry."""


class NotCrashed(_Change, frozen=True, gc=False):
    """A lease of the job ended without an outcome, but its worker lives: crashes - 1. For a job that waits or runs.

    A worker says so when it finds that a lease has ended, as after an outage of the store that was longer than a lease.
    """


class Rerank(Struct, frozen=True, gc=False):
    """Give a job that is ready, held or delayed another rank. `waiters` and `queue` are as for every change."""

    id: int
    rank: float
    waiters: int | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        if type(self.rank) is not float or not isfinite(self.rank):
            _check_rank(self.rank)


Change = Remove | Cancel | Revive | StartNow | NotCrashed | Rerank


class ById(Struct, frozen=True, gc=False):
    """Look at the job with this id, in whatever state."""

    id: int


class ByKey(Struct, frozen=True, gc=False):
    """Look at the job that holds this key: it is ready, held, delayed or taken."""

    queue: str
    key: str


class Head(Struct, frozen=True, gc=False):
    """Look at the job that the next `take` would hand out first. A paused queue has none, nor one whose `Lanes.total`
    jobs are taken."""

    queue: str


Target = ById | ByKey | Head

LANE = 128
"""Characters of a lane's name."""
LANE_LIMIT = 10_000
"""The highest limit of a lane: what is counted whenever one of its jobs moves."""
WEIGHT = 1000
"""The highest weight of a lane; the lowest is one by it."""
TURN = 2.0**-40
"""The length of a turn in a fair line, whose levels are 1 apart: room for a trillion turns."""
NEWCOMER = 1 - 2.0**-10
"""The share of its first turn that a lane waits for when it comes into a fair line: see `accoda.storage.protocol`."""


class Lanes(Struct, frozen=True):
    """The rules of a queue for its lanes. For a job without a lane no rule holds: where lanes take turns, it comes
    first in its priority level.

    `limit`: at most so many jobs of a lane are in the line or run at once, over all workers; the others are held, and
    the best of them (lowest rank, then lowest id) comes into the line in the step that frees a place. `limits` has the
    limits of single lanes; 0 pauses a lane, None lifts the limit.

    `fair`: ready jobs whose ranks have the same whole part, which is their priority level, take turns by lane. A lane
    with weight 2 in `weights` has two jobs where others have one. With `by_cost`, a turn is as long as the job's cost.

    `total`: at most so many jobs of the queue run at once, over all workers and lanes, those without a lane included.

    `shared`: a name. The queues whose rules have the same name share their limits: a lane has at most `limit` jobs in
    the line or running in all of them together. Where the queues give a lane different limits, the lowest holds.

    >>> Lanes(limit=2, limits={"customer-7": 10, "spammer": 0}, fair=True).limit_of("customer-7")
    10
    """

    limit: int | None = None
    limits: Mapping[str, int | None] = {}
    fair: bool = False
    weights: Mapping[str, float] = {}
    by_cost: bool = False
    total: int | None = None
    shared: str | None = None

    def __post_init__(self) -> None:
        for field in ("limits", "weights"):
            if not isinstance(getattr(self, field), Mapping):
                _refuse(field, "must be a mapping such as {'customer-7': 2}", getattr(self, field))
        for name, limit in {"": self.limit, **self.limits}.items():
            if limit is not None and (type(limit) is not int or not 0 <= limit <= LANE_LIMIT):
                _refuse(f"limits[{name!r}]" if name else "limit", f"must be 0 to {LANE_LIMIT}, or None", limit)
        for name, weight in self.weights.items():
            if type(weight) not in (int, float) or not 1 / WEIGHT <= weight <= WEIGHT:
                _refuse(f"weights[{name!r}]", f"must be a number from 1/{WEIGHT} to {WEIGHT}", weight)
        for name in (*self.limits, *self.weights):
            check_lane(name)
        if self.total is not None:
            check_count("total", self.total)
        if self.shared is not None:
            check_name("shared", self.shared)
        for field in ("fair", "by_cost"):
            if type(getattr(self, field)) is not bool:
                _refuse(field, "must be True or False", getattr(self, field))

    def limit_of(self, lane: str) -> int | None:
        """How many jobs of this lane may be in the line or run; None: as many as there are."""
        return self.limits.get(lane, self.limit)

    def turn_of(self, lane: str, cost: int) -> float:
        """The length of the turn of a job with this cost."""
        return ((cost or 1) if self.by_cost else 1) / self.weights.get(lane, 1) * TURN


class LaneInfo(Struct, frozen=True, gc=False):
    """The jobs of a lane that are ready, held and taken."""

    lane: str
    ready: int
    held: int
    taken: int


class LanesInfo(Struct, frozen=True):
    """The rules of a queue (None: it has none), and its lanes with ready, held or taken jobs: those with most ready and
    held ones first, then by name. `count` is how many such lanes there are."""

    rules: Lanes | None
    lanes: tuple[LaneInfo, ...]
    count: int


class Cursor(Struct, frozen=True, gc=False):
    """A place in a listing, as `JobInfo.cursor` gives it: what orders the jobs there, then the id."""

    sort: float
    id: int


class QueueStats(Struct, frozen=True, gc=False):
    """Counts of one queue. `total` is ready + held + taken + delayed + dead. `oldest_age` is in seconds since the
    creation of the oldest ready job.

    done, retried, buried, expired, cancelled and promoted count events since the store was made. `promoted`: delayed
    jobs that became ready because their start time came; one that `StartNow` started is none.
    """

    total: int = 0
    ready: int = 0
    taken: int = 0
    delayed: int = 0
    dead: int = 0
    oldest_age: float = 0.0
    done: int = 0
    retried: int = 0
    buried: int = 0
    expired: int = 0
    cancelled: int = 0
    promoted: int = 0
    paused: bool = False
    paused_until: int | None = None
    held: int = 0


class Stats(Struct, frozen=True):
    """The whole store at one moment: `stats.queues["emails"].ready`."""

    queues: dict[str, QueueStats]


class Document(Struct, frozen=True, gc=False):
    """A small versioned value beside the jobs. `expires_at` is None where it has no time to live."""

    name: str
    value: bytes
    version: int
    expires_at: int | None = None


class JobInfo(Struct, frozen=True, gc=False):
    """All that is stored about a job, in whatever state, for people to look at.

    `worker` and `taken_at` tell who took it last, and when; `lease_until` is set while it is taken, `ended_at` when it
    is dead, done or cancelled. `reason` is why it was last retried or buried; `result` is what `Done` left. `turn` is
    what orders a ready job in place of its rank, where lanes take turns and the two differ.
    """

    id: int
    queue: str
    state: State
    data: bytes
    rank: float
    cost: int
    key: str | None
    attempts: int
    created_at: int
    start_time: int
    prev_start_time: int | None
    waiters: int
    keep_for: float = 0.0
    worker: str | None = None
    taken_at: int | None = None
    lease_until: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    result: bytes | None = None
    tries: int = 0
    crashes: int = 0
    lane: str | None = None
    turn: float | None = None

    def cursor(self, order: Order = "line") -> Cursor:
        """Where `browse` continues after this job."""
        if order == "id":
            return Cursor(0.0, self.id)
        if self.state in ("ready", "held"):
            return Cursor(self.rank if self.turn is None else self.turn, self.id)
        moment = {"delayed": self.start_time, "taken": self.lease_until}.get(self.state, self.ended_at)
        return Cursor(float(moment or 0), self.id)


class Look(Struct, frozen=True, gc=False):
    """One job (None: there is none) and what was asked about it, all of the moment `at`, by the storage's clock.

    `waiters` are those asked for, in the order in which they joined. `ahead` is how many ready jobs `take` would hand
    out before this one, for a delayed job if it were ready now; None if it was not asked for or the job is neither.
    `newer` of them have a higher id: they came later and go first. Both are exact up to `AHEAD_AT_MOST`; a job with
    more before it has `ahead == AHEAD_AT_MOST + 1`, and `newer` counts among the first `AHEAD_AT_MOST`.
    """

    at: int
    job: JobInfo | None = None
    waiters: tuple[bytes, ...] = ()
    ahead: int | None = None
    newer: int = 0


def check_jobs(jobs: Sequence[NewJob], field: str = "jobs") -> None:
    """Refuse what is no list of `NewJob`. The fields of each were checked when it was made."""
    check_sequence(field, jobs)
    for job in jobs:
        if type(job) is not NewJob:
            raise InvalidInput(field, f"must hold NewJob only, not {type(job).__name__}")
    if len(jobs) > allowed.jobs_per_call:
        too_large(field, len(jobs), "jobs_per_call")


def check_take(queue: str, count: int, lease: float, max_cost: int | None) -> None:
    """Refuse what `take` cannot be asked for."""
    # The usual one, in a few comparisons: this runs for every batch.
    if (
        type(queue) is str
        and queue in _good_names
        and type(count) is int
        and 0 <= count <= COST
        and type(lease) is float
        and 0.001 <= lease <= MOMENT / 1000
        and max_cost is None
    ):
        return
    check_queue(queue)
    check_count("count", count)
    check_lease(lease)
    if max_cost is not None:
        check_count("max_cost", max_cost)


def check_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Refuse what is no list of outcomes."""
    check_sequence("outcomes", outcomes)
    for outcome in outcomes:
        # The usual one, in a few comparisons: this runs for every job. The rest is examined at leisure.
        if (
            type(outcome) is Done
            and not outcome.then
            and outcome.result is None
            and type(outcome.lease) is Lease
            and type(outcome.lease.id) is int
            and 0 <= outcome.lease.id < _END_OF_IDS
            and type(outcome.lease.queue) is str
            and type(outcome.lease.attempts) is int
            and 0 <= outcome.lease.attempts < _END_OF_IDS
            and type(outcome.lease.taken_at) is int
            and 0 <= outcome.lease.taken_at <= MOMENT
        ):
            continue
        _check_outcome(outcome)


def _check_outcome(outcome: object) -> None:
    if isinstance(outcome, Done):
        check_jobs(outcome.then, "then")
        if outcome.result is not None and type(outcome.result) is not bytes:
            raise InvalidInput("result", f"must be bytes or None, not {type(outcome.result).__name__}")
        # The limit itself held when the result was encoded: to refuse it here would refuse the whole batch's outcomes.
        if outcome.result is not None and len(outcome.result) > MOST.result:
            too_large("result", len(outcome.result), "result")
    elif not isinstance(outcome, (Retry, Bury)):
        raise InvalidInput("outcomes", f"must hold Done, Retry or Bury, not {type(outcome).__name__}")
    else:
        if isinstance(outcome, Retry) and type(outcome.counts) is not bool:
            raise InvalidInput("counts", f"must be True or False, not {outcome.counts!r:.80}")
        if type(outcome.reason) is not str:
            raise InvalidInput("reason", f"must be text, not {type(outcome.reason).__name__}")
        if outcome.then or type(outcome.then) is not tuple:  # seldom
            check_jobs(outcome.then, "then")
    check_lease_token(outcome.lease)


def check_lease_token(lease: object) -> None:
    """Refuse what is no lease of a taken job."""
    if type(lease) is not Lease:
        raise InvalidInput("lease", f"must be the lease of a taken job, not {type(lease).__name__}")
    if (
        type(lease.queue) is not str
        or type(lease.attempts) is not int
        or not 0 <= lease.attempts < _END_OF_IDS
        or type(lease.taken_at) is not int
        or not 0 <= lease.taken_at <= MOMENT
    ):
        raise InvalidInput("lease", f"must be the lease of a taken job, not {lease!r:.100}")
    check_id(lease.id)


def check_id(id: object) -> None:
    """Refuse what cannot be a job's id."""
    if type(id) is not int or not 0 <= id < _END_OF_IDS:
        raise InvalidInput("id", f"must be an integer from 0 to 2**63 - 1, not {id!r:.80}")


def check_sequence(field: str, value: object) -> None:
    """Refuse what is no list or tuple, or like one."""
    if type(value) is list or type(value) is tuple:  # the usual ones: to ask whether it is a Sequence is slow
        return
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput(field, f"must be a list or tuple, not {type(value).__name__}")


def check_queue(name: object) -> None:
    """Refuse a queue name that some storage, URL or metric could not carry."""
    if type(name) is str and name in _good_names:
        return
    check_name("queue", name)
    if len(_good_names) < 10_000:  # a bound, so that names from outside cannot fill the memory
        _good_names.add(cast(str, name))


def check_name(field: str, name: object) -> None:
    """Refuse what cannot be the name of a queue or a worker."""
    if not is_name(name):
        _refuse(field, NAME_RULE, name)


def check_duration(field: str, seconds: object) -> None:
    """Refuse a length of time that is no finite number of seconds >= 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= MOMENT / 1000:
        _refuse(field, "must be a number of seconds >= 0", seconds)


def check_lease(seconds: object) -> None:
    """Refuse a lease that would be over as soon as it began."""
    if type(seconds) is float and 0.001 <= seconds <= MOMENT / 1000:  # the usual one, at once
        return
    check_duration("lease", seconds)
    if cast(float, seconds) < 0.001:
        _refuse("lease", "must be at least 0.001 seconds", seconds)


def check_count(field: str, value: object) -> None:
    """Refuse what is no whole number >= 0."""
    if type(value) is not int or not 0 <= value <= COST:
        _refuse(field, "must be an integer >= 0", value)


def check_moment(field: str, moment: object) -> None:
    """Refuse what is no moment in integer milliseconds."""
    if type(moment) is not int or not 0 <= moment <= MOMENT:
        _refuse(field, "must be integer milliseconds since the epoch", moment)


def check_state(state: object) -> None:
    """Refuse a word that is no state."""
    if state not in STATES:
        _refuse("state", f"must be one of {', '.join(STATES)}", state)


def check_document_name(name: object) -> None:
    """Refuse a document name that is empty, too long or no text."""
    if type(name) is not str or not 0 < len(name) <= DOCUMENT_NAME or not name.isprintable():
        _refuse("name", f"must be 1 to {DOCUMENT_NAME} printable characters", name)


def clean(text: str) -> str:
    """What every storage can keep of a text from outside: no NUL, no lone surrogates, a bounded length."""
    if text.isascii() and len(text) <= TEXT and "\0" not in text:
        return text
    return text[:TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _check_data(data: object) -> None:
    if type(data) is not bytes:
        _refuse("data", "must be bytes; encode it first, for example with msgspec.msgpack.encode", data)
    too_large("data", len(data), "payload")


def _check_rank(rank: object) -> None:
    try:
        good = isinstance(rank, (int, float)) and not isinstance(rank, bool) and isfinite(rank)
    except OverflowError:  # an integer beyond every float
        good = False
    if not good:
        _refuse("rank", "must be a finite number", rank)


def _check_start(delay: object, start_at: object) -> None:
    if delay is not None and start_at is not None:
        raise InvalidInput("start_at", "give either delay or start_at, not both")
    if delay is not None:
        check_duration("delay", delay)
    if start_at is not None:
        check_moment("start_at", start_at)


def _check_key(job: NewJob) -> None:
    if job.on_duplicate not in _ON_DUPLICATE:
        _refuse("on_duplicate", "must be 'keep', 'rerank', 'replace' or 'attach'", job.on_duplicate)
    if job.key is None:
        field = "waiter" if job.waiter is not None else "on_duplicate"
        raise InvalidInput(field, "needs a key: jobs are shared, replaced, reranked or kept by their key")
    if type(job.key) is not str or not 0 < len(job.key) <= KEY or clean(job.key) != job.key:
        _refuse("key", f"must be 1 to {KEY} characters of valid text without NUL", job.key)
    if job.waiter is not None:
        if type(job.waiter) is not bytes:
            _refuse("waiter", "must be bytes", job.waiter)
        if len(job.waiter) > allowed.waiter:
            too_large("waiter", len(job.waiter), "waiter")


def _check_reports_to(job: NewJob) -> None:
    reports_to = job.reports_to
    if type(reports_to) is not str or not 0 < len(reports_to) <= KEY or clean(reports_to) != reports_to:
        _refuse("reports_to", f"must be 1 to {KEY} characters of valid text without NUL", reports_to)
    if job.key is None or "\n" in job.key:
        raise InvalidInput("reports_to", "needs a key without a line feed: the report names the job by it")


def check_lane(name: object) -> None:
    """Refuse what cannot be the name of a lane."""
    if type(name) is not str or not 0 < len(name) <= LANE or not name.isprintable():
        _refuse("lane", f"must be 1 to {LANE} printable characters", name)


def _refuse(field: str, rule: str, value: Any) -> NoReturn:
    shown = repr(value)
    raise InvalidInput(field, f"{rule}, not {shown if len(shown) <= 80 else shown[:77] + '...'}")
