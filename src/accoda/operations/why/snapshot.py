"""What is read: one job, its queue, its workers and what it waits for. A handful of calls, whatever is stored.

    look ──► a job that ended or runs: who holds its key, or which worker runs it
        └──► a waiting job: the counters, the workers, the manager's assignment, the head of the line, its budgets, the
             note of a pause, how fast its queue was served lately; of a job of a lane, how its lane stands

Each call is O(log n) or reads one document, except that the jobs of lanes are counted for a job of a lane. Together
they are not one moment, and need not be: people read the answer.
"""

from __future__ import annotations

from msgspec import Struct

from accoda.budget import Budget
from accoda.budget.books import DOCUMENT as BUDGETS
from accoda.budget.ledger import Basis, Ledger, account_of, decode
from accoda.budget.model import Account
from accoda.envelope import unwrap
from accoda.errors import JobNotFound
from accoda.flows.model import LOG
from accoda.model import AHEAD_AT_MOST, ENDED, ById, ByKey, Head, JobInfo, Look, QueueStats
from accoda.operations.attempt_text import max_attempts
from accoda.operations.bookkeeping import COMPANIONS, bookkeeping
from accoda.operations.handlers import options_of
from accoda.operations.history.reading import ServiceRate, read_rate
from accoda.operations.host import Host
from accoda.operations.jobs import check_id
from accoda.operations.queues import PauseNote, pause_note
from accoda.operations.why.lane_stand import LaneStand, read_lanes
from accoda.payload import read_json
from accoda.runtime.heartbeat import Heartbeat, read_heartbeats
from accoda.runtime.manager.manager import ASSIGNMENT
from accoda.runtime.manager.rule import Assignment
from accoda.storage.protocol import Store


class QueueBudget(Struct, frozen=True):
    """A budget that pays for the queue, and its account."""

    budget: Budget
    account: Account


class Declared(Struct, frozen=True):
    """What this app's code says about the queue, if it has a handler for it."""

    demand: bool = False
    max_attempts: int | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything that an explanation follows from.

    `head` is the first of the line, unless the queue is paused or runs as many jobs as it may; `holder` holds the key
    of a job that has ended. `reason` is why the job was last retried, given back or buried; `why` redacts it.
    `is_record`: it is never run, as a record in one of Accoda's books: a cached result, a flow, or a line of a log.
    """

    look: Look
    reason: str = ""
    declared: Declared = Declared()
    queues: dict[str, QueueStats] = {}
    workers: tuple[Heartbeat, ...] = ()
    assignment: Assignment | None = None
    head: JobInfo | None = None
    budgets: tuple[QueueBudget, ...] = ()
    pause: PauseNote | None = None
    lanes: LaneStand | None = None
    holder: JobInfo | None = None
    rate: ServiceRate | None = None
    is_record: bool = False

    @property
    def now(self) -> int:
        return self.look.at

    @property
    def job(self) -> JobInfo:
        assert self.look.job is not None  # `gather` raises JobNotFound
        return self.look.job

    @property
    def type(self) -> str | None:
        return unwrap(self.job.data)[0].type

    @property
    def ahead(self) -> int:
        """Jobs ahead of this one, counted up to `AHEAD_AT_MOST`."""
        return self.look.ahead or 0

    @property
    def ahead_is_more(self) -> bool:
        return self.ahead > AHEAD_AT_MOST

    @property
    def would_be_held(self) -> bool:
        """Whether a delayed job has no place in its lane now, as far as is known."""
        stand = self.lanes
        if self.job.state != "delayed" or stand is None or stand.limit is None:
            return False
        return stand.counts is None or stand.counts.ready + stand.counts.taken >= stand.limit

    @property
    def stats(self) -> QueueStats:
        """The counters of the job's queue."""
        return self.queues.get(self.job.queue, QueueStats())


async def gather(host: Host, id: int) -> Snapshot:
    """Look at a job and what is around it. Raises JobNotFound."""
    check_id(id)
    store = await host.connections.get()
    look = await store.look(ById(id), ahead=True)
    job = look.job
    if job is None:
        raise JobNotFound(id)
    reason, declared = job.reason or "", _declared(host, job)
    if job.state in ENDED:
        holder = None if job.key is None else (await store.look(ByKey(job.queue, job.key))).job
        return Snapshot(look=look, reason=reason, declared=declared, holder=holder)
    workers = tuple(await read_heartbeats(store))
    if job.state == "taken":
        return Snapshot(look=look, reason=reason, declared=declared, workers=workers)
    queues = (await store.stats()).queues
    stats = queues.get(job.queue, QueueStats())
    head = None if stats.paused else (await store.look(Head(job.queue))).job
    return Snapshot(
        look=look,
        reason=reason,
        declared=declared,
        queues=queues,
        workers=workers,
        assignment=await _assignment(store),
        head=head,
        budgets=await _budgets(host, store, job.queue, look.at),
        pause=await pause_note(store, job.queue, stats),
        lanes=await read_lanes(store, job, stats, head),
        rate=await read_rate(store, job.queue),
        is_record=job.queue == LOG
        or (job.queue.endswith(COMPANIONS) and job.queue in await bookkeeping(store, queues, host.demands)),
    )


def _declared(host: Host, job: JobInfo) -> Declared:
    return Declared(job.queue in host.demands, max_attempts(host, job))


async def _assignment(store: Store) -> Assignment | None:
    document = await store.read(ASSIGNMENT)
    return None if document is None else read_json(document.value, Assignment)


async def _budgets(host: Host, store: Store, queue: str, now: int) -> tuple[QueueBudget, ...]:
    """The budgets that pay for the queue: those that its handler names or, without a handler here, those in which it
    has a claim. What only the code knows about a budget (its headroom) is then left out."""
    options = options_of(host, queue)
    if options is not None and not options.budgets:
        return ()
    document = await store.read(BUDGETS)
    ledger = Ledger() if document is None else decode(document.value, now)
    if options is not None:
        basis = Basis(dict(host.budgets), now)
        names = [name for name in options.budgets if name in host.budgets]
        return tuple(QueueBudget(host.budgets[name], account_of(ledger, basis, name)) for name in names)
    claimed = {name: each for name, each in ledger.accounts.items() if _claims(each, queue, now)}
    return tuple(QueueBudget(Budget(name, a.capacity, a.refill, a.per), a) for name, a in sorted(claimed.items()))


def _claims(account: Account, queue: str, now: int) -> bool:
    claim = account.claims.get(queue)
    return claim is not None and claim.until > now
