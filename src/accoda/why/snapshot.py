"""What is looked at: one job, its queue, who serves it and what it waits for. A handful of calls, whatever is stored.

    place ──► a job that ended or runs: who holds its key, or who runs it
         └──► a job that waits: the counters, the workers, the manager's word, the head of the line, its budgets, the
              note of a pause, how fast its queue was served lately

Each call is O(log n) or reads one document; together they are no single moment, and need not be:
people read the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.budget import Budget
from accoda.budget.books import DOCUMENT as BUDGETS
from accoda.budget.ledger import Desk, Ledger, account_of, decode
from accoda.budget.model import Account
from accoda.envelope import unwrap
from accoda.errors import InvalidInput, JobNotFound
from accoda.history import ServiceRate, read_rate
from accoda.model import JobInfo, Place, QueueStats
from accoda.payload import read_json
from accoda.runtime.heartbeat import Heartbeat, read_heartbeats
from accoda.runtime.manager.manager import ASSIGNMENT
from accoda.runtime.manager.rule import Assignment
from accoda.settings.knobs import QUEUE_KNOBS
from accoda.storage.protocol import Store
from accoda.why.pauses import PauseNote, read_note

if TYPE_CHECKING:
    from accoda.app import App


class Funds(Struct, frozen=True):
    """A budget of the queue, and its account."""

    budget: Budget
    account: Account


class Known(Struct, frozen=True):
    """What the code says of the queue, where this app has a handler of it."""

    handled: bool = False
    demand: bool = False
    batch: int | None = None
    max_attempts: int | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything that an answer follows from.

    `head` is the first of the line, of a queue that is not paused; `holder` holds the key of a job that has ended.
    `reason` is why the job was last retried or buried: whoever shows it to others hides what is secret of it.
    """

    place: Place
    reason: str = ""
    known: Known = Known()
    queues: dict[str, QueueStats] = {}
    workers: tuple[Heartbeat, ...] = ()
    word: Assignment | None = None
    head: JobInfo | None = None
    funds: tuple[Funds, ...] = ()
    pause: PauseNote | None = None
    holder: JobInfo | None = None
    rate: ServiceRate | None = None

    @property
    def now(self) -> int:
        return self.place.at

    @property
    def job(self) -> JobInfo:
        return self.place.job

    @property
    def stats(self) -> QueueStats:
        """The counters of the job's queue."""
        return self.queues.get(self.job.queue, QueueStats())


async def gather(app: App, id: int) -> Snapshot:
    """Look at a job and what is around it. Raises JobNotFound."""
    if type(id) is not int or not 0 <= id < 1 << 63:
        raise InvalidInput("id", f"must be the number of a job, not {id!r:.60}")
    store = await app.connections.get()
    place = await store.place(id)
    if place is None:
        raise JobNotFound(id)
    job = place.job
    known = _known(app, job)
    if job.state == "done":
        return Snapshot(place=place, reason=job.reason or "", known=known)
    if job.state == "dead":
        holder = None if job.key is None else (await store.peek(job.queue, job.key)).job
        return Snapshot(place=place, reason=job.reason or "", known=known, holder=holder)
    workers = tuple(await read_heartbeats(store))
    if job.state == "taken":
        return Snapshot(place=place, reason=job.reason or "", known=known, workers=workers)
    queues = (await store.stats()).queues
    stats = queues.get(job.queue, QueueStats())
    return Snapshot(
        place=place,
        reason=job.reason or "",
        known=known,
        queues=queues,
        workers=workers,
        word=await _word(store),
        head=None if stats.paused else (await store.peek(job.queue)).job,
        funds=await _funds(app, store, job.queue, place.at),
        pause=await read_note(store, job.queue, stats.paused_until) if stats.paused else None,
        rate=await read_rate(store, job.queue),
    )


def _known(app: App, job: JobInfo) -> Known:
    handler = app.handlers.get(job.queue)
    own = unwrap(job.data)[0].max_attempts
    if handler is None:
        return Known(demand=job.queue in app.demands, max_attempts=own)
    options = handler.options
    batch = options.batch or int(QUEUE_KNOBS["batch_size"].default or 1)
    return Known(True, job.queue in app.demands, batch, options.max_attempts if own is None else own)


async def _word(store: Store) -> Assignment | None:
    document = await store.read(ASSIGNMENT)
    return None if document is None else read_json(document.value, Assignment)


async def _funds(app: App, store: Store, queue: str, now: int) -> tuple[Funds, ...]:
    """The budgets that pay for the queue: those that its handler names or, where there is none here, those that it has
    a claim in. What only the code knows of a budget (its headroom) is then left out."""
    handler = app.handlers.get(queue)
    if handler is not None and not handler.options.budgets:
        return ()
    document = await store.read(BUDGETS)
    ledger = Ledger() if document is None else decode(document.value, now)
    if handler is not None:
        desk = Desk(app.budgets, now)
        names = [name for name in handler.options.budgets if name in app.budgets]
        return tuple(Funds(app.budgets[name], account_of(ledger, desk, name)) for name in names)
    claimed = {name: each for name, each in ledger.accounts.items() if _claims(each, queue, now)}
    return tuple(Funds(Budget(name, a.capacity, a.refill, a.per), a) for name, a in sorted(claimed.items()))


def _claims(account: Account, queue: str, now: int) -> bool:
    claim = account.claims.get(queue)
    return claim is not None and claim.until > now
