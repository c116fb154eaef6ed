"""What a worker holds of its app's budgets: how a take is paid for, and what becomes of the payment.

    peek ──► reserve ──► take ──► give back what was not taken ──► run ──► settle what was really spent
                 └► Wait: the queue is held in the rotation, and nobody else is

A `Bill` is one reservation and the jobs that were taken with it. It is settled once, when the last of them has ended,
together with what their handlers said meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from accoda.budget import LOOK_AGAIN, Ask, Grant, Never, Settlement, Wait
from accoda.errors import StorageError, VersionConflict
from accoda.model import Bury, Done, Job, JobInfo, NewJob, Outcome, Retry
from accoda.runtime.accounts import Office
from accoda.runtime.batch import Batch
from accoda.runtime.bill import Bill
from accoda.runtime.desk import Desk
from accoda.runtime.notes import Notes
from accoda.runtime.room import Room
from accoda.runtime.usage import line_of
from accoda.storage.holding import held_here

OVERTAKEN = "given back unrun: it came before a job that no budget can pay, and is not affordable yet"

CROWDED = 1000
"""Milliseconds to wait where others were faster in everything that was tried."""
LEAVE = 2.0
"""Seconds that a worker which leaves tries to give its reservations back."""

log = logging.getLogger("accoda.worker")


class Paid(Struct, frozen=True):
    """Jobs that are paid for, and a head that never can be."""

    jobs: list[Job] = []
    buried: list[Outcome] = []


class Tally(Struct):
    """What this worker counts of one budget: tokens used, refusals by the API, and takes that had to wait."""

    used: float = 0.0
    refused: int = 0
    waits: int = 0


class Purse:
    """Belongs to one worker, and to its event loop."""

    def __init__(self, room: Room, office: Office) -> None:
        self.books = office.books
        self.tallies: dict[str, Tally] = {}
        self._room = room
        self._clock = office.clock
        own = office.connections.clock
        self._now = self._steady if own is None else own.now
        """The storage's clock, for any thread."""
        self._bills: dict[int, Bill] = {}
        self._ahead = 0.0
        self.books.readers.add(self._tokens_came_back)
        for desk in room.desks.values():
            for name in desk.budgets:
                self.tallies.setdefault(name, Tally())

    async def take(self, desk: Desk) -> Paid:
        """Take what can be paid. Nothing, and the queue is held, while its head cannot be."""
        queue, rotation = desk.queue, self._room.rotation
        head = (await self._room.store.peek(queue)).job
        if head is None:
            rotation.report(queue, 1, 0)
            return Paid()
        try:
            answer = await self.books.reserve(self._ask(desk, head, desk.batch_size))
        except VersionConflict as error:  # others were faster for many seconds on end: let them
            log.warning("too many workers want the same budgets at once: %s", error)
            answer = Wait(self._clock.guess() + CROWDED, desk.budgets[0])
        if isinstance(answer, Wait):
            # No await since the answer came. Whoever gave tokens back before it is in it; who does after it is answered
            # after us, and then finds the queue held: no wake-up is lost.
            self._hold(queue, answer)
            return Paid()
        if isinstance(answer, Never):
            rotation.report(queue, 1, 1)
            return await self._without_head(desk, head, answer)
        jobs = await self._take(desk, answer)
        asked = answer.count if _drained(jobs, answer, head) else len(jobs)
        rotation.report(queue, asked, len(jobs))
        return Paid(jobs)

    def open(self, batch: Batch[Any]) -> None:
        """A batch of jobs that were paid for is about to be run."""
        bill = self._bills.get(batch.taken[0].id)
        if bill is not None:
            # The steady clock is read in the handler's thread; only this line looks at the storage's.
            self._ahead = self._clock.guess() - time.monotonic() * 1000
            bill.add(batch)
            batch.notes = Notes(bill.budgets, bill.notes.append, self._now)

    def begin(self, batch: Batch[Any]) -> None:
        """Its handler is called: from now on its jobs may spend."""
        bill = self._bills.get(batch.taken[0].id)
        if bill is not None:
            bill.begin(batch, self._clock.guess())

    async def pay(self, outcomes: list[Outcome]) -> list[NewJob]:
        """These jobs end so. Their lines of the log go with those that are done; those of the others are given back, to
        be stored before they end. A bill whose last job this is, is settled."""
        loose: list[NewJob] = []
        for index, outcome in enumerate(outcomes):
            bill = self._bills.pop(outcome.lease.id, None)
            if bill is None:
                continue
            usage = bill.end(outcome, self._clock.guess())
            if usage is not None and bill.logs:
                line = line_of(usage)
                if isinstance(outcome, Done):
                    outcomes[index] = Done(outcome.lease, (*outcome.then, line), outcome.result, outcome.waiters)
                else:
                    loose.append(line)
            if not bill.open:
                await self._settle(bill)
        return loose

    def forget(self, jobs: Iterable[Job]) -> None:
        """Nothing becomes of these jobs: their reservation is not renewed, and ends by itself as their leases do."""
        for job in jobs:
            self._bills.pop(job.id, None)

    async def renew(self) -> None:
        """Make the reservations of what still runs last, from a third of their lease on; write what is still owed."""
        await self.books.flush()
        now = self._clock.guess()
        due: dict[float, list[Bill]] = {}
        for bill in set(self._bills.values()):
            if now - bill.renewed_at >= bill.lease * 1000 / 3:
                due.setdefault(bill.lease, []).append(bill)
        for lease, bills in due.items():
            try:
                await self.books.renew([bill.grant for bill in bills], lease)
            except StorageError as error:  # tried again at the next look; until then others may use the tokens
                log.warning("cannot renew what is reserved of the budgets: %s", error)
                continue
            for bill in bills:
                bill.renewed_at = now

    async def close(self) -> None:
        """The worker leaves: what it reserved and did not use goes back."""
        self.books.readers.discard(self._tokens_came_back)
        bills = set(self._bills.values())
        self._bills.clear()
        with suppress(StorageError, TimeoutError):  # where the store is away, they end with their leases
            async with asyncio.timeout(LEAVE):
                for bill in bills:
                    await self.books.settle(bill.settlement(self._clock.guess()))
                await self.books.flush()

    # -- the take

    def _ask(self, desk: Desk, head: Job | JobInfo, most: int) -> Ask:
        urgent = desk.is_urgent(head)
        return Ask(desk.queue, desk.budgets, head.cost, urgent, most, desk.lease, self._room.worker)

    async def _take(self, desk: Desk, grant: Grant) -> list[Job]:
        try:
            with held_here():
                jobs = await self._room.store.take(
                    desk.queue, grant.count, lease=desk.lease, max_cost=grant.max_cost, worker=self._room.worker
                )
        except BaseException:
            # Jobs that were taken although no answer came are nobody's until their leases end, and then paid anew.
            await self._give_back(grant)
            raise
        # Pinned before the next await: should this call be cancelled there, `close` still knows of it.
        bill = self._pin(desk, grant, jobs)
        bill.grant = await self.books.keep(grant, len(jobs), sum(job.cost for job in jobs))
        if bill.grant.amounts != grant.amounts or not jobs:
            self._tokens_came_back(desk.budgets)
        return jobs

    def _pin(self, desk: Desk, grant: Grant, jobs: Sequence[Job]) -> Bill:
        bill = Bill(grant, desk, jobs, self._clock.guess())
        for job in jobs:
            self._bills[job.id] = bill
        return bill

    async def _without_head(self, desk: Desk, head: JobInfo, never: Never) -> Paid:
        """Take the head alone, to bury it. Another job may have come before it meanwhile, which is then paid for."""
        with held_here():
            jobs = await self._room.store.take(desk.queue, 1, lease=desk.lease, worker=self._room.worker)
        if not jobs or jobs[0].id == head.id:
            return Paid(buried=[desk.ending(job, Bury(job.lease, never.reason)) for job in jobs])
        job = jobs[0]
        try:
            answer = await self.books.reserve(self._ask(desk, job, 1))
        except (StorageError, VersionConflict):
            answer = Wait(0, never.budget)
        if isinstance(answer, Grant):
            self._pin(desk, answer, jobs)
            return Paid(jobs)
        if isinstance(answer, Never):
            return Paid(buried=[desk.ending(job, Bury(job.lease, answer.reason))])
        await self._room.store.settle([Retry(job.lease, reason=OVERTAKEN)])
        return Paid()

    def _hold(self, queue: str, wait: Wait) -> None:
        """Look again when the moment comes, or before: another worker may have given tokens back."""
        self.tallies[wait.budget].waits += 1
        ours, theirs = self._room.clock, self._clock.guess()
        pause = min(wait.until - theirs, round(LOOK_AGAIN * 1000))
        self._room.rotation.hold(queue, ours.now() + pause, ours)

    # -- the end

    async def _settle(self, bill: Bill) -> None:
        settlement = bill.settlement(self._clock.guess())
        await self.books.settle(settlement)
        for budgets, until in bill.other_closes:
            await self.books.close(budgets, until)
        for name in bill.budgets:
            tally = self.tallies[name]
            tally.used += bill.used(name)
            tally.refused += settlement.refused if not settlement.closes or name in settlement.closes else 0
        if settlement.observed or any(bill.used(name) < bill.grant.amounts.get(name, 0) for name in bill.budgets):
            self._tokens_came_back(bill.budgets)

    async def _give_back(self, grant: Grant) -> None:
        with suppress(StorageError):  # else it ends with its lease
            await self.books.settle(Settlement(grant))

    def _tokens_came_back(self, budgets: Sequence[str]) -> None:
        rotation, desks = self._room.rotation, self._room.desks
        rotation.release([queue for queue in rotation.held() if set(desks[queue].budgets) & set(budgets)])

    def _steady(self) -> int:
        return int(time.monotonic() * 1000 + self._ahead)


def _drained(jobs: Sequence[Job], grant: Grant, head: JobInfo) -> bool:
    """Whether a take that found fewer than it asked for seems to have emptied the queue, and not the grant."""
    if grant.max_cost is None or not jobs:
        return True
    return grant.max_cost - sum(job.cost for job in jobs) >= head.cost
