"""How a worker pays for what it takes.

    look at the head ──► reserve ──► take ──► give back what was not taken ──► run ──► settle what was really spent
                            └► Wait: the queue is blocked in the rotation, and no other is

A `Reservation` is settled once, when the last of its jobs has ended, together with what their handlers said meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from accoda.budget import LOOK_AGAIN, Ask, Books, Grant, Never, Settlement, Wait
from accoda.budget.report import BudgetReporter
from accoda.budget.reservation import PaidQueue, Reservation
from accoda.budget.usage import line_of
from accoda.clock import Clock
from accoda.errors import StorageError, VersionConflict
from accoda.model import Done, Head, Job, JobInfo, NewJob, Outcome, Refused, Retry
from accoda.queue_access import QueueAccess, RunningBatch, Taken
from accoda.storage.protocol import Store

OVERTAKEN = "given back unrun: it came before a job that no budget can pay, and is not affordable yet"

CROWDED = 1000
"""Milliseconds to wait where others were faster in everything that was tried."""
LEAVE = 2.0
"""Seconds that a worker which leaves tries to give its reservations back."""

log = logging.getLogger("accoda.worker")


class Tally(Struct):
    """What this worker counts of one budget: tokens used, refusals by the API, and takes that had to wait."""

    used: float = 0.0
    refused: int = 0
    waits: int = 0


class Wallet:
    """The reservations of one worker. Belongs to its event loop.

    `wake` is called with queues in which a blocked head may be affordable now. `clock` is the app's own, if it has one.
    """

    def __init__(
        self, books: Books, worker: str, wake: Callable[[Sequence[str]], None], clock: Clock | None = None
    ) -> None:
        self.books = books
        self.worker = worker
        self.tallies: dict[str, Tally] = {}
        self.now = self._steady if clock is None else clock.now
        """The storage's clock, for any thread."""
        self._wake = wake
        self._blocked: dict[str, tuple[str, ...]] = {}
        self._reservations: dict[int, Reservation] = {}
        self._ahead = 0.0
        books.listeners.add(self.tokens_came_back)

    def access(self, queue: PaidQueue, inner: QueueAccess, store: Callable[[], Store]) -> PaidAccess:
        """The access to a queue whose jobs are paid for."""
        for name in queue.budgets:
            self.tallies.setdefault(name, Tally())
        return PaidAccess(self, queue, inner, store)

    def reserve(self, grant: Grant, queue: PaidQueue, jobs: Sequence[Job]) -> Reservation:
        """Note which jobs a grant pays for."""
        reservation = Reservation(grant, queue, jobs, self.books.budgets, self.books.clock.guess())
        for job in jobs:
            self._reservations[job.id] = reservation
        return reservation

    def began(self, batch: RunningBatch) -> None:
        reservation = self._reservations.get(batch.taken[0].id)
        if reservation is not None:
            now = self.books.clock.guess()
            # The steady clock is read in the handler's thread; only this line reads the storage's.
            self._ahead = now - time.monotonic() * 1000
            reservation.begin(batch, now)
            batch.reporter = BudgetReporter(reservation.budgets, reservation.reports.append, self.now)

    async def pay(self, outcomes: list[Outcome]) -> list[NewJob]:
        """These jobs end so. The log lines of those that are done become their follow-ups; those of the others are
        returned, to be stored before they end. A reservation whose last job this is, is settled."""
        loose: list[NewJob] = []
        for index, outcome in enumerate(outcomes):
            reservation = self._reservations.pop(outcome.lease.id, None)
            if reservation is None:
                continue
            usage = reservation.end(outcome, self.books.clock.guess())
            if usage is not None and reservation.logs:
                line = line_of(usage)
                if isinstance(outcome, Done):
                    outcomes[index] = Done(outcome.lease, (*outcome.then, line), outcome.result, outcome.waiters)
                else:
                    loose.append(line)
            if not reservation.open:
                await self._settle(reservation)
        return loose

    def forget(self, jobs: Iterable[Job]) -> None:
        """Nothing becomes of these jobs: their reservation is not renewed, and ends by itself as their leases do."""
        for job in jobs:
            self._reservations.pop(job.id, None)

    async def renew(self) -> None:
        """Make the reservations of what still runs last, from a third of their lease on; write what is still owed."""
        await self.books.flush()
        now = self.books.clock.guess()
        due: dict[float, list[Reservation]] = {}
        for reservation in set(self._reservations.values()):
            if now - reservation.renewed_at >= reservation.lease * 1000 / 3:
                due.setdefault(reservation.lease, []).append(reservation)
        for lease, reservations in due.items():
            try:
                await self.books.renew([reservation.grant for reservation in reservations], lease)
            except StorageError as error:  # tried again the next time; until then others may use the tokens
                log.warning("cannot renew what is reserved of the budgets: %s", error)
                continue
            for reservation in reservations:
                reservation.renewed_at = now

    async def close(self) -> None:
        """The worker leaves: what it reserved and did not use goes back."""
        self.books.listeners.discard(self.tokens_came_back)
        reservations = set(self._reservations.values())
        self._reservations.clear()
        with suppress(StorageError, TimeoutError):  # where the store is away, they end with their leases
            async with asyncio.timeout(LEAVE):
                for reservation in reservations:
                    await self.books.settle(reservation.settlement(self.books.clock.guess()))
                await self.books.flush()

    def block(self, queue: PaidQueue, wait: Wait) -> int:
        """The queue cannot be paid for now: the milliseconds until the next look."""
        self.tallies[wait.budget].waits += 1
        self._blocked[queue.queue] = queue.budgets
        # Sooner than it must be: another worker may give tokens back.
        return min(wait.until - self.books.clock.guess(), round(LOOK_AGAIN * 1000))

    def tokens_came_back(self, budgets: Sequence[str]) -> None:
        queues = [queue for queue, needed in self._blocked.items() if set(needed) & set(budgets)]
        for queue in queues:
            del self._blocked[queue]
        self._wake(queues)

    async def _settle(self, reservation: Reservation) -> None:
        settlement = reservation.settlement(self.books.clock.guess())
        await self.books.settle(settlement)
        for budgets, until in reservation.other_closes:
            await self.books.close(budgets, until)
        for name in reservation.budgets:
            tally = self.tallies[name]
            tally.used += reservation.used(name)
            tally.refused += settlement.refused if not settlement.closes or name in settlement.closes else 0
        amounts = reservation.grant.amounts
        if settlement.observed or any(reservation.used(name) < amounts.get(name, 0) for name in reservation.budgets):
            self.tokens_came_back(reservation.budgets)

    def _steady(self) -> int:
        return int(time.monotonic() * 1000 + self._ahead)


class PaidAccess:
    """A queue whose jobs are taken only when its budgets can pay for them."""

    def __init__(self, wallet: Wallet, queue: PaidQueue, inner: QueueAccess, store: Callable[[], Store]) -> None:
        self._wallet = wallet
        self._queue = queue
        self._inner = inner
        self._store = store
        self.began = wallet.began
        self.forget = wallet.forget
        self.enqueue = inner.enqueue

    async def take(
        self, count: int, settling: asyncio.Future[None] | None = None, max_cost: int | None = None
    ) -> Taken:
        """Take what can be paid for; nothing, and the queue is blocked, while its head cannot be."""
        if settling is not None:
            await settling  # what the last batch really cost, and what the API said, is known first
        head = (await self._store().look(Head(self._queue.queue))).job
        if head is None:
            return Taken()
        try:
            answer = await self._wallet.books.reserve(self._ask(head, count))
        except VersionConflict as error:  # others were faster for many seconds on end: let them
            log.warning("too many workers want the same budgets at once: %s", error)
            answer = Wait(self._wallet.books.clock.guess() + CROWDED, self._queue.budgets[0])
        if isinstance(answer, Wait):
            # Nothing is awaited between the answer and the block in the rotation. Tokens that came back before the
            # answer are in it; tokens that come back later find the queue blocked: no wake-up is lost.
            return Taken(blocked_for=self._wallet.block(self._queue, answer))
        if isinstance(answer, Never):
            return await self._take_hopeless(head, answer)
        jobs = await self._take(answer)
        return Taken(jobs, more=len(jobs) >= answer.count or not _drained(jobs, answer, head))

    async def settle(self, outcomes: list[Outcome]) -> list[Refused]:
        """Pay, then settle: if this process dies in between, the jobs run, and cost, again."""
        try:
            lines = await self._wallet.pay(outcomes)
            if lines:
                await self._inner.enqueue(lines)
        except Exception:  # a mistake of ours: it must not keep the jobs from their end
            log.exception("cannot settle what jobs have cost")
        return await self._inner.settle(outcomes)

    def _ask(self, head: Job | JobInfo, most: int) -> Ask:
        queue = self._queue
        urgent = queue.is_urgent(head)
        return Ask(queue.queue, queue.budgets, head.cost, urgent, most, queue.lease, self._wallet.worker)

    async def _take(self, grant: Grant) -> Sequence[Job]:
        books = self._wallet.books
        try:
            jobs = (await self._inner.take(grant.count, max_cost=grant.max_cost)).jobs
        except BaseException:
            # Jobs that were taken although no answer came are lost to us until their leases end, and then paid anew.
            with suppress(StorageError):  # else it ends with its lease
                await books.settle(Settlement(grant))
            raise
        # Noted before the next await: should this call be cancelled there, `close` still knows of it.
        reservation = self._wallet.reserve(grant, self._queue, jobs)
        reservation.grant = await books.keep(grant, len(jobs), sum(job.cost for job in jobs))
        if reservation.grant.amounts != grant.amounts or not jobs:
            self._wallet.tokens_came_back(self._queue.budgets)
        return jobs

    async def _take_hopeless(self, head: JobInfo, never: Never) -> Taken:
        """Take the head alone, to bury it. Another job may have come before it meanwhile, which is then paid for."""
        jobs = (await self._inner.take(1)).jobs
        if not jobs or jobs[0].id == head.id:
            return Taken(more=True, hopeless=[(job, never.reason) for job in jobs])
        job = jobs[0]
        try:
            answer = await self._wallet.books.reserve(self._ask(job, 1))
        except (StorageError, VersionConflict):
            answer = Wait(0, never.budget)
        if isinstance(answer, Grant):
            self._wallet.reserve(answer, self._queue, jobs)
            return Taken(jobs, more=True)
        if isinstance(answer, Never):
            return Taken(more=True, hopeless=[(job, answer.reason)])
        await self._inner.settle([Retry(job.lease, reason=OVERTAKEN, counts=False)])
        return Taken(more=True)


def _drained(jobs: Sequence[Job], grant: Grant, head: JobInfo) -> bool:
    """Whether a take that found fewer than it asked for seems to have emptied the queue, and not the grant."""
    if grant.max_cost is None or not jobs:
        return True
    return grant.max_cost - sum(job.cost for job in jobs) >= head.cost
