"""A processor: one take-run-settle loop.

    take → open → run → decide → settle
     ▲                              │
     └──── in one round trip ───────┘

A batch that was run is settled together with the next take, so a busy loop costs one round trip for each batch. The
processor never waits for a batch to fill: it runs what there is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from accoda.errors import AccodaError, RetryLater, StorageError, WorkerStopped
from accoda.model import Bury, Done, Job, NewJob, Outcome, Refused, Retry
from accoda.queue_access import RunningBatch, Taken
from accoda.retry import Failed, describe, runs_alone
from accoda.runtime.batch import BatchRun, ending, open_batches
from accoda.runtime.events import BatchReport, HandlerStats, tell
from accoda.runtime.heartbeat import ProcessorState, QueueRate, QueueSums
from accoda.runtime.queue_service import DECAY, QueueService
from accoda.runtime.worker_context import WorkerContext
from accoda.storage.common.lease_durability import hold_here
from accoda.storage.common.reconnecting import Backoff

T = TypeVar("T")

ALONE = "given back while a job that may be poison runs alone"
HELD = "given back: a handler that was stopped does not end, and holds the processor that took it"

log = logging.getLogger("accoda.worker")


class Processor:
    """One loop. `run_once` is one turn of it."""

    def __init__(self, number: int, context: WorkerContext, services: dict[str, QueueService]) -> None:
        self.number = number
        self.context = context
        self.retired = False
        self.queue: str | None = None
        self._services = services
        self._running: tuple[QueueService, BatchRun] | None = None
        self._ran: tuple[QueueService, BatchRun] | None = None
        """A batch that was run, on its way to be settled."""
        self._held_by: asyncio.Event | None = None
        """Set when a thread that was given up has ended: until then it counts as what this processor runs."""
        self._trouble: Backoff | None = None

    @property
    def held(self) -> bool:
        """Whether it starts nothing because a handler that was stopped does not end."""
        return self._held_by is not None

    async def run(self) -> None:
        """Turn after turn, until the worker stops or this processor is retired; then settle what is in hand."""
        context = self.context
        hold_here()
        try:
            while not (context.stopping or (self.retired and not self.held)):
                if self._held_by is not None:
                    await self._wait_for_thread(self._held_by)
                elif context.draining:
                    await self._stand_by()
                else:
                    await self._turn()
        finally:
            await self._put_down()

    async def _stand_by(self) -> None:
        """Settle what is in hand, and take nothing until the worker no longer drains."""
        await self._put_down()
        # No await between the look and the rest: whatever ends the drain from here on calls those that rest.
        if self.context.draining and not (self.context.stopping or self.retired):
            await self.context.rotation.rest()

    async def _wait_for_thread(self, ended: asyncio.Event) -> None:
        """Start nothing until the thread that was given up has ended; the outcomes of its batch are settled meanwhile.

        Not in `rotation.rest`: a call that is meant for a free processor would be lost on this one.
        """
        await self._put_down()
        if self.context.rotation.idle:
            self.context.rotation.quiet.set()  # a burst does not wait for it if nothing is left to start
        await ended.wait()
        self._held_by = None
        if not self.context.stopping:
            log.info("processor %d works again", self.number)

    async def _put_down(self) -> None:
        if self.queue is not None:
            self.context.rotation.leave(self.queue)
            self.queue = None
        await self._settle_last()
        self._end_isolation()

    async def _turn(self) -> None:
        rotation = self.context.rotation
        if rotation.only is None or rotation.only != self.queue:
            self.queue = rotation.pick(self.queue, returns=self._ran is not None)
        if self.queue is None:
            await rotation.rest()
            return
        service = self._services[self.queue]
        try:
            await self.run_once(service)
        except Exception:  # a mistake of ours: the leases in hand will end, the loop goes on
            log.exception("processor %d failed in queue %s; going on in a second", self.number, service.queue)
            await asyncio.sleep(1)

    async def run_once(self, service: QueueService) -> None:
        """One turn: settle what the last one left, take a batch, run it."""
        started = time.monotonic()
        isolation = self.context.isolation
        if isolation.owner is not None:
            await self._step_aside()
        # No await between the look and the entry: a processor that is isolated from here on sees this one at work.
        isolation.at_work.add(self)
        jobs = await self._exchange(service)
        if not jobs:
            isolation.leave(self)
            return
        batches: list[BatchRun] = []
        try:
            batches, not_run = open_batches(service, jobs)
            if not_run:
                await self._settle_not_run(service, not_run)
            await self._run_all(service, batches, started)
        except Exception:
            service.access.forget(jobs)
            self.context.batches.difference_update(batches)
            raise

    async def _run_all(self, service: QueueService, batches: list[BatchRun], started: float) -> None:
        """One batch after the other; those that wait keep their leases."""
        for batch in batches:
            batch.started = started
            self.context.batches.add(batch)
            if not batch.taken[0].crashes:
                service.one_by_one = False
        while batches:
            if self._ran is not None:
                await self._settle_last()
            if self.context.aborted:
                for batch in batches:
                    batch.finish(WorkerStopped("the worker stopped"))
            elif self.held:
                await self._give_back(service, batches, HELD)
                return
            elif (first := batches[0].taken[0]).crashes and runs_alone(first, service.limits):
                await self._run_alone(service, batches)
                return
            await self._run(service, batches.pop(0))

    def stop(self, error: BaseException) -> None:
        """Stop what runs: the handler is interrupted, and its jobs go back."""
        if self._running is not None:
            service, batch = self._running
            service.runner.stop(batch, batch.ids(), error)

    def tell_stopping(self) -> None:
        """Let the handler know that the worker was asked to stop."""
        if self._running is not None:
            self._running[1].stopping = True
        if self._held_by is not None:
            self._held_by.set()  # a worker that leaves does not wait for it

    async def flush(self) -> None:
        """Settle the jobs of a long batch that are finished, while the others still run.

        Only for handlers of single jobs: one that has a whole batch may still change its mind.
        """
        if self._running is None or self._running[0].handler.takes_batch:
            return
        service, batch = self._running
        outcomes = batch.outcomes()
        if outcomes:
            # Marked as settled only when the store has answered: until then their leases must be kept. The batch may
            # end meanwhile; it waits for this, so no outcome is sent twice.
            batch.flushed = asyncio.Event()
            batch.settling = True
            try:
                refused = await service.access.settle(outcomes)
                batch.settled.update(outcome.lease.id for outcome in outcomes)
            finally:
                batch.settling = False
                batch.flushed.set()
            self._report(service, batch, outcomes, refused)

    @property
    def state(self) -> ProcessorState:
        """What it does at present."""
        if self._running is None:
            return ProcessorState()
        service, batch = self._running
        return ProcessorState(service.queue, len(batch), batch.taken[0].id, round(batch.since * 1000))

    # -- a job that may be poison

    async def _step_aside(self) -> None:
        """While another processor is isolated, have nothing in hand."""
        await self._settle_last()
        self.context.isolation.leave(self)
        await self.context.isolation.wait()

    def _end_isolation(self) -> None:
        self.context.isolation.leave(self)
        self.context.isolation.end(self)

    async def _run_alone(self, service: QueueService, batches: list[BatchRun]) -> None:
        """Run the first job, which may kill the process, while nothing else is in hand; the others go back."""
        suspect, *others = batches
        service.one_by_one = True
        if others:
            await self._give_back(service, others, ALONE)
        isolation, over = self.context.isolation, None
        try:
            if await isolation.begin(self, service.lease):
                # Not for longer than a lease: a job that takes hours must not stop the whole process for hours.
                over = asyncio.get_running_loop().call_later(service.lease, isolation.end, self)
                await self._run(service, suspect)
                await self._settle_last()
            else:
                await self._give_back(service, [suspect], ALONE)
        finally:
            if over is not None:
                over.cancel()
            self._end_isolation()

    async def _give_back(self, service: QueueService, batches: list[BatchRun], reason: str) -> None:
        jobs = [job for batch in batches for job in batch.taken]
        for batch in batches:
            batch.settling = True
        await service.access.settle([Retry(job.lease, reason=reason, counts=False) for job in jobs])
        self.context.batches.difference_update(batches)

    # -- take

    async def _exchange(self, service: QueueService) -> Sequence[Job]:
        """Settle the last batch and take the next, both on their way at once.

        Neither waits for the other: storages put them into one round trip, or one transaction. The order does not
        matter, since they are about different jobs.
        """
        context, rotation = self.context, self.context.rotation
        settling = None if self._ran is None else asyncio.get_running_loop().create_task(self._settle_last())
        try:
            taken = await service.access.take(1 if service.one_by_one else service.batch_size, settling)
            if taken.blocked_for is not None:
                rotation.block(service.queue, context.clock.now() + taken.blocked_for, context.clock)
            elif taken.more and rotation.only == service.queue:
                rotation.last_take = time.monotonic()
            else:
                rotation.report(service.queue, more=taken.more, found=bool(taken.jobs))
            self._trouble = None
        except StorageError as error:
            rotation.report(service.queue, more=False, found=False)
            log.warning("cannot take jobs, trying again soon: %s", error)
            self._trouble = self._trouble or Backoff(0.2, 5.0)
            await self._trouble.nap()
            return ()
        finally:
            if settling is not None:
                await settling
        if taken.hopeless:
            hopeless = [ending(service, job, Bury(job.lease, reason)) for job, reason in taken.hopeless]
            await self._settle_not_run(service, hopeless)
        return taken.jobs

    async def _settle_not_run(self, service: QueueService, outcomes: list[Outcome]) -> None:
        """Settle jobs that were taken but are not run: those that are buried, and those that are quarantined."""
        count = len(outcomes)
        refused = await service.access.settle(outcomes)
        if self.context.monitors:
            lost = {refusal.lease for refusal in refused}
            kept = tuple([outcome for outcome in outcomes if outcome.lease not in lost])
            buried = sum(isinstance(outcome, Bury) for outcome in kept)
            stats = HandlerStats(errors=buried, retried=len(kept) - buried, buried=buried, lost=len(lost))
            report = BatchReport(service.queue, service.number, count, stats, 0.0, 0.0, kept)
            tell(self.context.monitors, "batch_started", service.queue, service.number, count)
            tell(self.context.monitors, "batch_ended", report)

    # -- run

    async def _run(self, service: QueueService, batch: BatchRun) -> None:
        context, timeout, size = self.context, batch.timeout, len(batch.taken)
        self._running = service, batch
        batch.since = context.time()
        batch.waited = max(0.0, batch.since - batch.taken[0].start_time / 1000)
        batch.stopping = context.stopping
        began = time.monotonic()
        if timeout is not None:
            # Jobs that run one after the other in a thread or process have the timeout each.
            allowed = timeout * (1 if service.runs_together else size)
            batch.leases_end_at = began + allowed
            batch.deadline = round((batch.since + allowed) * 1000)
        if context.monitors:
            tell(context.monitors, "batch_started", service.queue, service.number, size)
        try:
            if len(batch.results) < size:
                service.access.began(batch)
                await batch.run()
        finally:
            batch.duration = time.monotonic() - began
            if len(batch.results) < size:
                batch.finish(WorkerStopped("the worker stopped"))
            self._running, self._ran = None, (service, batch)
            if batch.held_by is not None and not batch.held_by.is_set():
                self._held_by = batch.held_by
                log.error("processor %d starts nothing until a handler of %s ends", self.number, service.queue)

    # -- settle

    async def _settle_last(self) -> None:
        """Settle the batch that was run last."""
        if self._ran is None:
            return
        (service, batch), self._ran = self._ran, None
        try:
            if batch.flushed is not None:
                # Until the store has answered it is not known which of its jobs are settled, and all leases are kept.
                await batch.flushed.wait()
            batch.settling = True
            outcomes = batch.outcomes()
            # First the follow-ups: if they cannot be enqueued, nothing is settled, and the jobs ask for them again.
            if batch.loose and not await self._enqueue_loose(service, batch, outcomes):
                refused = all_lost(outcomes)
            else:
                refused = await service.access.settle(outcomes)
        finally:
            self.context.batches.discard(batch)
        self._report(service, batch, outcomes, refused, whole=True)
        batch.forget()

    async def _enqueue_loose(self, service: QueueService, batch: BatchRun, outcomes: list[Outcome]) -> bool:
        """See to the follow-ups of the batch as a whole: with the first job that is done, or apart if none is."""
        return with_follow_ups(outcomes, batch.loose) or await service.access.enqueue(batch.loose)

    def _report(
        self,
        service: QueueService,
        batch: BatchRun,
        outcomes: list[Outcome],
        refused: list[Refused],
        *,
        whole: bool = False,
    ) -> None:
        context, kept = self.context, outcomes
        if refused:
            lost = {refusal.lease.id for refusal in refused}
            kept = [outcome for outcome in outcomes if outcome.lease.id not in lost]
            batch.lost |= lost
        failed = tuple([outcome for outcome in kept if type(outcome) is not Done])
        duration, done = batch.duration if whole else 0.0, len(kept) - len(failed)
        context.jobs_run += len(outcomes)
        _count(service, len(outcomes), duration, batch.waited)
        if failed:
            context.attempts.note(batch, failed, round(context.time() * 1000))
        if context.monitors:
            report = BatchReport(
                service.queue,
                service.number,
                len(outcomes),
                summary(batch, done, failed, len(outcomes) - len(kept), duration),
                time.monotonic() - batch.started if whole else 0.0,
                batch.waited,
                failed,
            )
            tell(context.monitors, "batch_ended", report)


class StoreAccess:
    """The plain access to a queue: straight to the worker's store.

    Each call reads `context.store` anew: the worker may have reconnected since, and closed the old one.
    """

    def __init__(self, service: QueueService, context: WorkerContext) -> None:
        self._service = service
        self._context = context

    async def take(
        self, count: int, settling: asyncio.Future[None] | None = None, max_cost: int | None = None
    ) -> Taken:
        service, context = self._service, self._context
        jobs = await context.store.take(
            service.queue, count, lease=service.lease, max_cost=max_cost, worker=context.worker
        )
        return Taken(jobs, more=len(jobs) >= count)

    def began(self, batch: RunningBatch) -> None:
        pass

    async def settle(self, outcomes: list[Outcome]) -> list[Refused]:
        """To repeat it is safe: an outcome that was applied already is refused then, and changes nothing."""
        if not outcomes:
            return []
        refused = await self.insist(f"settle {len(outcomes)} outcomes", lambda: self._context.store.settle(outcomes))
        if refused is not None:
            if refused:
                self._context.false_crashes.not_settled(refused)
            return refused
        if len(outcomes) == 1 or self._context.aborted:
            return all_lost(outcomes)
        # The store will not have one of them (a damaged job, perhaps): that must not keep the others from their end.
        return [refusal for outcome in outcomes for refusal in await self.settle([outcome])]

    async def enqueue(self, jobs: Sequence[NewJob]) -> bool:
        return await self.insist("enqueue follow-ups", lambda: self._context.store.enqueue(jobs)) is not None

    def forget(self, jobs: Iterable[Job]) -> None:
        pass

    async def insist(self, what: str, call: Callable[[], Awaitable[T]]) -> T | None:
        """Call the store until it answers: while it is away, the lease heartbeat keeps the leases. None: given up."""
        trouble: Backoff | None = None
        while True:
            try:
                return await call()
            except StorageError as error:
                if self._context.aborted:
                    log.error("cannot %s: %s; the leases will end", what, error)
                    return None
                log.warning("cannot %s, trying again soon: %s", what, error)
                trouble = trouble or Backoff(0.2, 2.0)
                await trouble.nap()
            except AccodaError:
                log.exception("the store refused to %s; the leases will end", what)
                return None


def all_lost(outcomes: Sequence[Outcome]) -> list[Refused]:
    """The answer of a store that applied none of them."""
    return [Refused(outcome.lease, "lost") for outcome in outcomes]


def _count(service: QueueService, jobs: int, duration: float, waited: float) -> None:
    """Jobs were settled: their batch ran for `duration` seconds, and they had waited that long before."""
    rate, sums = service.rate, service.sums
    service.rate = QueueRate(rate.jobs * DECAY + jobs, rate.busy * DECAY + duration)
    # Jobs that ran at the same time ran for as long as their batch, each of them.
    ran = duration * (jobs if service.runs_together else 1)
    service.sums = QueueSums(sums.jobs + jobs, sums.ran + ran, sums.waited + waited * jobs)


def with_follow_ups(outcomes: list[Outcome], follow_ups: Sequence[NewJob]) -> bool:
    """Let the first `Done` carry a batch's follow-ups; False: there is none that could."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Done):
            outcomes[index] = Done(outcome.lease, (*outcome.then, *follow_ups), outcome.result, outcome.waiters)
            return True
    return False


def summary(batch: BatchRun, done: int, failed: Sequence[Outcome], lost: int, duration: float) -> HandlerStats:
    """Settled jobs of a batch in numbers. A retry that the handler asked for is no error."""
    results = {outcome.lease.id: batch.results.get(outcome.lease.id) for outcome in failed}
    errors = {id: result.error for id, result in results.items() if isinstance(result, Failed)}
    errors = {id: error for id, error in errors.items() if not isinstance(error, (RetryLater, WorkerStopped))}
    return HandlerStats(
        processed=done,
        errors=len(errors),
        retried=sum(isinstance(outcome, Retry) for outcome in failed),
        buried=sum(isinstance(outcome, Bury) for outcome in failed),
        lost=lost,
        duration=duration,
        last_error=_last_error(batch, errors),
    )


def _last_error(batch: BatchRun, errors: dict[int, BaseException]) -> str:
    if not errors:
        return ""
    id = next(reversed(errors))
    job = next(job for job in batch.taken if job.id == id)
    return batch.mask(job).text(describe(errors[id]))
