"""A processor: one take-run-settle loop.

    take → open → run → decide → settle
     ▲                              │
     └──── in one round trip ───────┘

The outcomes of a batch are carried to the store together with the next take, so a busy loop costs one round trip for
each batch. The processor never waits for a batch to fill: it runs what there is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, TypeVar

from accoda.errors import AccodaError, LeaseLost, StorageError, WorkerStopped
from accoda.model import Done, Job, Outcome, Refused, Retry
from accoda.runtime.batch import Batch
from accoda.runtime.desk import Desk, all_lost, portions, summary, with_follow_ups
from accoda.runtime.events import BatchReport, HandlerStats
from accoda.runtime.heartbeat import ProcessorState
from accoda.runtime.keeper import Held
from accoda.runtime.purse import Purse
from accoda.runtime.rites import Rites
from accoda.runtime.room import Carry, Room
from accoda.storage.backoff import Backoff
from accoda.storage.holding import held_here

T = TypeVar("T")

ALONE = "given back while a job that may be poison runs alone"

log = logging.getLogger("accoda.worker")


class Processor:
    """One loop. `run_once` is one turn of it."""

    def __init__(self, number: int, room: Room) -> None:
        self.number = number
        self.room = room
        self.retired = False
        self.queue: str | None = None
        self._running: Carry | None = None
        self._carry: Carry | None = None
        self._paid: list[Job] = []
        self._trouble = Backoff(0.2, 5.0)

    async def run(self) -> None:
        """Turn after turn, until the worker stops or this processor is retired; then settle what is in hand."""
        rotation = self.room.rotation
        try:
            while not (self.room.stopping or self.retired):
                if self.room.draining:
                    await self._stand_by()
                    continue
                self.queue = rotation.pick(self.queue, carries=self._carry is not None)
                if self.queue is None:
                    await rotation.rest()
                else:
                    await self._turn(self.room.desks[self.queue])
        finally:
            await self._put_down()

    async def _stand_by(self) -> None:
        """Settle what is in hand, and take nothing until the worker no longer drains."""
        await self._put_down()
        # No await between the look and the rest: who ends the drain from here on rings, and is heard.
        if self.room.draining and not (self.room.stopping or self.retired):
            await self.room.rotation.rest()

    async def _put_down(self) -> None:
        if self.queue is not None:
            self.room.rotation.leave(self.queue)
            self.queue = None
        await self._settle_carry()
        self._step_back()

    async def _turn(self, desk: Desk) -> None:
        try:
            await self.run_once(desk)
        except Exception:  # a mistake of ours: the leases in hand will end, the loop goes on
            if self.room.purse is not None:
                self.room.purse.forget(self._paid)
            log.exception("processor %d failed in queue %s; going on in a second", self.number, desk.queue)
            await asyncio.sleep(1)

    async def run_once(self, desk: Desk) -> None:
        """One turn: settle what the last one left, take a batch, run it."""
        started = time.monotonic()
        caution = self.room.caution
        if caution.turn is not None:
            await self._step_aside()
        # No await between the look and the entry: whoever gains the turn from here on sees this hand.
        caution.hands.add(self)
        jobs = await self._exchange(desk)
        if not jobs:
            caution.put_down(self)
            return
        if desk.handler.rites is not None and not await self._prepare(desk.handler.rites, jobs):
            if self.room.purse is not None:
                self.room.purse.forget(jobs)
            return
        batches, buried = desk.open_batches(jobs)
        if buried:
            await self._bury(desk, buried)
        held = [self._hold(desk, batch) for batch in batches]
        while held:
            if self._carry is not None:
                await self._settle_carry()
            if self.room.aborted:
                for one in held:
                    one.batch.finish(WorkerStopped("the worker stopped"))
            elif desk.is_suspect(held[0].batch.taken[0]):
                await self._run_alone(desk, held, started)
                return
            await self._run(desk, held.pop(0), started)

    def stop(self, error: BaseException) -> None:
        """Stop what runs: the handler is interrupted, and its jobs go back."""
        if self._running is not None:
            batch = self._running.batch
            self._running.desk.runner.stop(batch, [job.id for job in batch.taken], error)

    def tell_stopping(self) -> None:
        """Let the handler know that the worker was asked to stop."""
        if self._running is not None:
            self._running.batch.stopping = True

    async def flush(self) -> None:
        """Settle the jobs of a long batch that are finished, while the others still run.

        Only for handlers of single jobs: one that has a whole batch may still change its mind.
        """
        carry = self._running
        if carry is None or carry.desk.handler.takes_batch:
            return
        outcomes = carry.desk.outcomes(carry.batch)
        if outcomes:
            # Marked as settled only when the store has answered: until then the keeper must hold their leases. The
            # batch may end meanwhile; it waits for this, so no outcome is sent twice.
            carry.flushed = asyncio.Event()
            try:
                if self.room.purse is not None and carry.batch.notes is not None:
                    await self._pay(self.room.purse, outcomes)
                refused = await self._end(carry.desk, outcomes)
                carry.batch.settled.update(outcome.lease.id for outcome in outcomes)
            finally:
                carry.flushed.set()
            self._report(carry, outcomes, refused)

    @property
    def state(self) -> ProcessorState:
        """What it does at present."""
        carry = self._running
        if carry is None:
            return ProcessorState()
        return ProcessorState(carry.desk.queue, len(carry.batch), carry.batch.taken[0].id, carry.since)

    async def _step_aside(self) -> None:
        """While another processor has a turn to itself, hold nothing."""
        await self._settle_carry()
        self.room.caution.put_down(self)
        await self.room.caution.wait()

    def _step_back(self) -> None:
        self.room.caution.put_down(self)
        self.room.caution.end(self)

    async def _run_alone(self, desk: Desk, held: list[Held], started: float) -> None:
        """Run the first job, which may kill the process, while nothing else is in hand; the others go back."""
        suspect, *others = held
        desk.be_careful()
        if others:
            await self._give_back(others)
        caution, over = self.room.caution, None
        try:
            if await caution.gain(self, desk.lease):
                # Not for longer than a lease: a job that takes hours must not stop the whole process for hours.
                over = asyncio.get_running_loop().call_later(desk.lease, caution.end, self)
                await self._run(desk, suspect, started)
                await self._settle_carry()
            else:
                await self._give_back([suspect])
        finally:
            if over is not None:
                over.cancel()
            self._step_back()

    async def _exchange(self, desk: Desk) -> list[Job]:
        """Settle what is carried and take the next batch, both on their way at once.

        Neither waits for the other: storages put them into one round trip, or one transaction. The order does not
        matter, since they are about different jobs.
        """
        settling = None if self._carry is None else asyncio.get_running_loop().create_task(self._settle_carry())
        try:
            if self.room.purse is not None and desk.budgets:
                jobs = await self._take_paid(self.room.purse, desk, settling)
            else:
                count, lease = desk.batch_size, desk.lease
                with held_here():
                    jobs = await self.room.store.take(desk.queue, count, lease=lease, worker=self.room.worker)
                self.room.rotation.report(desk.queue, count, len(jobs))
            self._trouble.reset()
        except StorageError as error:
            jobs = []
            self.room.rotation.report(desk.queue, 1, 0)
            log.warning("cannot take jobs, trying again soon: %s", error)
            await self._trouble.nap()
        finally:
            if settling is not None:
                await settling
        return jobs

    async def _take_paid(self, purse: Purse, desk: Desk, settling: asyncio.Future[None] | None) -> list[Job]:
        """Take what the budgets allow. What the last batch really cost, and what the API said, is known first."""
        if settling is not None:
            await settling
        paid = await purse.take(desk)
        if paid.buried:
            await self._bury(desk, paid.buried)
        self._paid = paid.jobs
        return paid.jobs

    async def _run(self, desk: Desk, held: Held, started: float) -> None:
        batch = held.batch
        carry = self._running = Carry(desk, batch, held, started)
        carry.since = self.room.clock.now()
        carry.waited = max(0.0, (carry.since - batch.taken[0].start_time) / 1000)
        timeout = desk.timeout
        if timeout is not None:
            # Jobs that run one after the other in a thread or process have the timeout each.
            allowed = timeout * (1 if desk.all_at_once else len(batch))
            held.deadline = time.monotonic() + allowed
            batch.deadline = carry.since + round(allowed * 1000)
        batch.stopping = self.room.stopping
        size = len(batch.taken)
        self.room.audience.batch_started(desk.queue, desk.number, size)
        began = time.monotonic()
        try:
            if len(batch.results) < size:
                if batch.notes is not None and self.room.purse is not None:
                    self.room.purse.begin(batch)
                await desk.runner.run(batch, timeout)
        finally:
            carry.duration = time.monotonic() - began
            if len(batch.results) < size:
                batch.finish(WorkerStopped("the worker stopped"))
            self._running, self._carry = None, carry

    def _hold(self, desk: Desk, batch: Batch[Any]) -> Held:
        def lost(ids: Collection[int]) -> None:
            desk.runner.stop(batch, ids, LeaseLost("the lease was lost: cancelled, replaced, or given to another"))

        if self.room.purse is not None and desk.budgets:
            self.room.purse.open(batch)
        held = Held(batch, desk.lease, lost, desk.decide)
        self.room.keeper.hold(held)
        return held

    async def _settle_carry(self) -> None:
        carry, self._carry = self._carry, None
        if carry is None:
            return
        try:
            outcomes = carry.desk.outcomes(carry.batch) if carry.flushed is None else await carry.outcomes()
            if self.room.purse is not None and carry.batch.notes is not None:
                await self._pay(self.room.purse, outcomes)
            # First the follow-ups: if they cannot be enqueued, nothing is settled, and the jobs ask for them again.
            if carry.batch.loose and not await self._enqueue_loose(carry.batch, outcomes):
                refused = all_lost(outcomes)
            else:
                refused = await self._end(carry.desk, outcomes)
        finally:
            self.room.keeper.let_go(carry.held)
        self._report(carry, outcomes, refused, whole=True)
        carry.batch.forget()

    async def _enqueue_loose(self, batch: Batch[Any], outcomes: list[Outcome]) -> bool:
        """See to the follow-ups of the batch as a whole: with the first job that is done, or apart if none is."""
        if with_follow_ups(outcomes, batch.loose):
            return True
        return await self._insist("enqueue follow-ups", lambda: self.room.store.enqueue(batch.loose)) is not None

    async def _pay(self, purse: Purse, outcomes: list[Outcome]) -> None:
        """See to what these jobs cost, before they end: if this process dies in between, they run, and cost, again."""
        try:
            lines = await purse.pay(outcomes)
        except Exception:  # a mistake of ours: it must not keep the jobs from their end
            log.exception("cannot settle what jobs have cost")
            return
        if lines:
            await self._insist("log the use of tokens", lambda: self.room.store.enqueue(lines))

    async def _prepare(self, rites: Rites, jobs: list[Job]) -> bool:
        """Let the queue's rites look at the jobs of a take. False: the store will not have it, and the leases end."""
        what = "read what the jobs need"
        return await self._insist(what, lambda: _done(rites.opening(self.room.store, jobs))) is not None

    async def _end(self, desk: Desk, outcomes: list[Outcome]) -> list[Refused]:
        """Settle, with the queue's rites if it has some: again for those whose waiters grew meanwhile."""
        rites = desk.handler.rites
        if rites is None:
            return await self._settle(outcomes)
        refused: list[Refused] = []
        while outcomes:
            ready = await self._insist("read the waiters", partial(self._endings, rites, outcomes))
            if ready is None:
                return refused + all_lost(outcomes)
            answer = [refusal for part in portions(ready) for refusal in await self._settle(part)]
            grown = {refusal.lease for refusal in answer if refusal.why == "grown"}
            refused += [refusal for refusal in answer if refusal.why != "grown"]
            gone = {refusal.lease for refusal in answer}
            rites.ended([outcome for outcome in ready if outcome.lease not in gone])
            outcomes = [outcome for outcome in outcomes if outcome.lease in grown]
        return refused

    def _endings(self, rites: Rites, outcomes: list[Outcome]) -> Awaitable[list[Outcome]]:
        return rites.ending(self.room.store, outcomes)

    async def _settle(self, outcomes: list[Outcome]) -> list[Refused]:
        """Settle. To repeat it is safe: an outcome that was applied already is refused then, and changes nothing."""
        if not outcomes:
            return []
        refused = await self._insist(f"settle {len(outcomes)} outcomes", lambda: self.room.store.settle(outcomes))
        if refused is not None:
            return refused
        if len(outcomes) == 1 or self.room.aborted:
            return all_lost(outcomes)
        # The store will not have one of them (a damaged job, perhaps): that must not keep the others from their end.
        return [refusal for outcome in outcomes for refusal in await self._settle([outcome])]

    async def _insist(self, what: str, call: Callable[[], Awaitable[T]]) -> T | None:
        """Call the store until it answers: while it is away, the keeper tries to hold the leases. None: given up.

        `call` looks up the room's store each time: the worker may have connected anew since, and closed the old one.
        """
        trouble: Backoff | None = None
        while True:
            try:
                return await call()
            except StorageError as error:
                if self.room.aborted:
                    log.error("cannot %s: %s; the leases will end", what, error)
                    return None
                log.warning("cannot %s, trying again soon: %s", what, error)
                trouble = trouble or Backoff(0.2, 2.0)
                await trouble.nap()
            except AccodaError:
                log.exception("the store refused to %s; the leases will end", what)
                return None

    async def _bury(self, desk: Desk, buried: list[Outcome]) -> None:
        if self.room.purse is not None:
            await self._pay(self.room.purse, buried)
        refused = await self._settle(buried)
        stats = HandlerStats(errors=len(buried), buried=len(buried) - len(refused), lost=len(refused))
        self.room.audience.batch_started(desk.queue, desk.number, len(buried))
        report = BatchReport(desk.queue, desk.number, len(buried), stats, 0.0, 0.0, tuple(buried))
        self.room.audience.batch_ended(report)

    async def _give_back(self, others: list[Held]) -> None:
        leases = [job.lease for held in others for job in held.batch.taken]
        back: list[Outcome] = [Retry(lease, reason=ALONE) for lease in leases]
        if self.room.purse is not None:
            await self._pay(self.room.purse, back)
        await self._settle(back)
        for held in others:
            self.room.keeper.let_go(held)

    def _report(self, carry: Carry, outcomes: list[Outcome], refused: list[Refused], *, whole: bool = False) -> None:
        kept, lost = outcomes, {refusal.lease.id for refusal in refused}
        if lost:
            kept = [outcome for outcome in outcomes if outcome.lease.id not in lost]
            carry.batch.lost |= lost
        failed = tuple([outcome for outcome in kept if type(outcome) is not Done])
        self.room.jobs_run += len(outcomes)
        report = BatchReport(
            carry.desk.queue,
            carry.desk.number,
            len(outcomes),
            summary(carry.batch, len(kept) - len(failed), failed, len(lost), carry.duration if whole else 0.0),
            time.monotonic() - carry.started if whole else 0.0,
            carry.waited,
            failed,
            carry.desk.all_at_once,
        )
        self.room.audience.batch_ended(report)
        if failed:
            self.room.attempts.note(carry, failed, self.room.clock.now())


async def _done(call: Awaitable[None]) -> bool:
    await call
    return True
