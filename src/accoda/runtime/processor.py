"""A processor: one take-run-settle loop with slots for the jobs that it runs.

    settle what ended ─┐
                       ├─ in one round trip ──► open ──► run, each job in a slot ──► rest until one ends
    take for free slots┘                                                             or a queue has jobs

A slot is filled again as soon as its job has ended; no job waits for another one. What ended meanwhile is settled
together with the next take, so a busy loop costs one round trip for as many jobs as end at a time. Handlers of whole
batches have no slots: a processor runs one of their batches at a time, beside the single jobs. The processor never
waits for a batch to fill: it runs what there is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from accoda.envelope import type_of
from accoda.errors import AccodaError, RetryLater, StorageError, WorkerStopped
from accoda.flows.members import FlowMembers
from accoda.model import Bury, Done, Job, NewJob, Outcome, Refused, Retry
from accoda.queue_access import RunningBatch, Taken
from accoda.retry import Failed, cause_of, describe, runs_alone
from accoda.runtime.attempts import explain, explain_job
from accoda.runtime.batch import BatchRun, ending, open_jobs
from accoda.runtime.events import BatchReport, HandlerStats, tell
from accoda.runtime.heartbeat import LAST_ERROR, ProcessorState, QueueRate, QueueSums
from accoda.runtime.queue_service import DECAY, QueueService
from accoda.runtime.worker_context import WorkerContext
from accoda.storage.common.lease_durability import hold_here
from accoda.storage.common.reconnecting import Backoff

T = TypeVar("T")

ALONE = "given back while a job that may be poison runs alone"
STOPPED = "given back: the worker was stopped before the job began"
A_MOMENT = 1.0
"""Seconds within which most jobs that kill their process have done so."""

log = logging.getLogger("accoda.worker")


class Ended(Struct):
    """Jobs of a run that have ended, and what becomes of them. `ran` is how long they ran, in seconds. `last`: no other
    job of the run is left. `said` are outcomes that are settled already, by the handler itself."""

    service: QueueService
    batch: BatchRun
    outcomes: list[Outcome]
    ran: float
    last: bool
    said: list[Outcome] = []
    refused: list[Refused] = []


class Processor:
    """One loop. `run_once` is one turn of it. Belongs to the worker's event loop."""

    def __init__(self, number: int, context: WorkerContext, services: dict[str, QueueService], slots: int) -> None:
        self.number = number
        self.context = context
        self.slots = slots
        self.retired = False
        self.queue: str | None = None
        """The queue whose turn it was last."""
        self._services = services
        self._runs: dict[BatchRun, QueueService] = {}
        """What runs or is not settled yet, the oldest first."""
        self._ended: dict[BatchRun, None] = {}
        """Those of them in which jobs have ended that are to be settled."""
        self._holds: dict[str, int] = {}
        """For each queue that it serves, how many runs, and whether it is its turn: the rotation counts it once."""
        self._used = 0
        """Slots with a job, or with a thread that was given up and does not end."""
        self._batch: BatchRun | asyncio.Future[None] | None = None
        """The batch of a handler of batches that runs, or the end of its thread if that was given up."""
        self._stuck = 0
        """Slots whose threads were given up and have not ended."""
        self._woken: asyncio.Future[None] | None = None
        self._trouble: Backoff | None = None

    async def run(self) -> None:
        """Turn after turn, until the worker stops or this processor is retired; then settle what is in hand."""
        context = self.context
        hold_here()
        try:
            while not (context.stopping or (self.retired and not self.holds_threads)):
                await self._turn()
        except asyncio.CancelledError:
            await self._cancel()
            raise
        finally:
            await self._put_down()

    async def _turn(self) -> None:
        ended = self._collect()
        service = self._next(ended)
        if service is None and not ended:
            await self._rest()
            return
        try:
            await self.run_once(service, ended)
        except Exception:  # a mistake of ours: the leases in hand will end, the loop goes on
            log.exception("processor %d failed in queue %s; going on in a second", self.number, self.queue)
            await asyncio.sleep(1)

    def _next(self, ended: Sequence[Ended]) -> QueueService | None:
        """The queue to take from now; None: there is none, or no room for its jobs."""
        context, queue = self.context, self.context.rotation.only
        if context.draining or self.retired or context.isolation.owner is not None:
            queue = None
        elif queue is not None and queue in self._holds:  # no other has jobs
            queue = queue if self._has_room(queue) else None
        else:
            queue = context.rotation.pick(self._holds, self._has_room)
            if queue is None and ended and (last := ended[0].service.queue) not in context.rotation.left:
                # It goes to the store in any case: a look into a queue that sleeps costs no round trip of its own.
                queue = last if self._has_room(last) else None
        self._move_to(queue)
        return None if queue is None else self._services[queue]

    def _move_to(self, queue: str | None) -> None:
        if queue != self.queue:
            if queue is not None:
                self._hold(queue)
            if self.queue is not None:
                self._release(self.queue)
            self.queue = queue

    def _hold(self, queue: str) -> None:
        count = self._holds.get(queue, 0)
        self._holds[queue] = count + 1
        if not count:
            self.context.rotation.enter(queue)

    def _release(self, queue: str) -> None:
        self._holds[queue] -= 1
        if not self._holds[queue]:
            del self._holds[queue]
            self.context.rotation.leave(queue)

    def _has_room(self, queue: str) -> bool:
        return self._room(self._services[queue]) > 0

    def _room(self, service: QueueService) -> int:
        """How many jobs of a queue may be taken now."""
        if service.whole:
            return 0 if self._batch is not None else service.batch_size
        return min(self.slots - self._used, service.concurrency - service.running)

    async def _rest(self) -> None:
        """Until a job ends, or there may be something to pick."""
        if not self._runs:
            self.context.isolation.leave(self)
        rotation = self.context.rotation
        self._woken = woken = asyncio.get_running_loop().create_future()
        rotation.resting[woken] = None
        try:
            await woken
        finally:
            rotation.resting.pop(woken, None)
            self._woken = None

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    # -- what is in hand

    @property
    def holds_threads(self) -> bool:
        """Whether threads that were given up have not ended."""
        return self._stuck > 0 or isinstance(self._batch, asyncio.Future)

    @property
    def held(self) -> bool:
        """Whether it can start nothing because handlers that were stopped do not end."""
        return self.holds_threads and all(
            isinstance(self._batch, asyncio.Future) if service.whole else self._stuck >= self.slots
            for service in self._services.values()
        )

    @property
    def idle(self) -> bool:
        """Whether it runs nothing and could."""
        return not self._runs and not self.held

    @property
    def free(self) -> int:
        """Slots that no job has."""
        return max(0, self.slots - self._used)

    @property
    def states(self) -> list[ProcessorState]:
        """What it does at present: a line for each queue."""
        found: dict[str, ProcessorState] = {}
        for batch, service in self._runs.items():
            jobs = [job for job in batch.taken if job.id not in batch.settled]
            if not jobs:
                continue
            before = found.get(service.queue)
            since = round(batch.since * 1000)
            first, jobs_before, since = (
                (jobs[0].id, 0, since) if before is None else (before.first_id, before.jobs, before.since or since)
            )
            slots = len(batch) if service.whole else min(self.slots, service.concurrency)
            found[service.queue] = ProcessorState(service.queue, jobs_before + len(jobs), first, since, slots)
        return list(found.values()) or [ProcessorState()]

    def stop(self, error: BaseException) -> None:
        """Stop what runs: the handlers are interrupted, and their jobs go back."""
        for batch in self._runs:
            batch.owner.runner.stop(batch, batch.ids(), error)

    def tell_stopping(self) -> None:
        """Let the handlers know that the worker was asked to stop."""
        for batch in self._runs:
            batch.stopping = True
        self._wake()

    async def _cancel(self) -> None:
        """Our task was cancelled: so are the runs."""
        for batch in self._runs:
            if batch.task is not None:
                batch.task.cancel()

    async def _put_down(self) -> None:
        """Settle what ends until nothing is left."""
        self._move_to(None)
        await self._drain(None)
        self.context.isolation.leave(self)
        self.context.isolation.end(self)

    async def _drain(self, patience: float | None) -> None:
        """Take nothing, and settle what ends until nothing runs, or for so many seconds."""
        end = None if patience is None else time.monotonic() + patience
        while self._runs:
            if ended := self._collect():
                await self._settle(ended)
                continue
            self._woken = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(None if end is None else end - time.monotonic()):
                    await self._woken
            except TimeoutError:
                return
            finally:
                self._woken = None

    # -- one turn

    async def run_once(self, service: QueueService | None, ended: list[Ended]) -> None:
        """One turn: settle what has ended, and take and start what there is room for."""
        if service is None:
            await self._settle(ended)
            return
        started = time.monotonic()
        # No await since the look at the owner: a processor that is isolated from here on sees this one at work.
        self.context.isolation.at_work.add(self)
        jobs = await self._exchange(service, ended)
        if not jobs:
            return
        try:
            opened = open_jobs(service, jobs)
        except Exception:
            service.access.forget(jobs)
            raise
        for batch in (*opened.batches, *opened.suspects):
            batch.started = started
            self.context.batches.add(batch)  # from here on its leases are kept
        if opened.batches:
            service.one_by_one = False
        for batch in opened.batches:
            self._start(service, batch)
        if opened.not_run:
            await self._settle_not_run(service, jobs, opened.not_run)
        if opened.suspects:
            await self._run_suspects(service, opened.suspects)

    async def _exchange(self, service: QueueService, ended: list[Ended]) -> Sequence[Job]:
        """Settle what has ended and take for the free slots, both on their way at once.

        Neither waits for the other: storages put them into one round trip, or one transaction. They are about different
        jobs, so either order is good: a take that came first and missed a job that the settlement let in, from a full
        lane, sends the queue to sleep, and `wait` looks before it sleeps.
        """
        context, rotation = self.context, self.context.rotation
        count = 1 if service.one_by_one else self._room(service)
        settling = asyncio.get_running_loop().create_task(self._settle(ended)) if ended else None
        try:
            taken = await service.access.take(count, settling)
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
            found = [
                (service.owner_of(type_of(job.data)) or service.handlers[0], job, why) for job, why in taken.hopeless
            ]
            buried: list[Outcome] = [ending(one, job, Bury(job.lease, why)) for one, job, why in found]
            await self._settle_not_run(service, [job for job, _ in taken.hopeless], buried)
        return taken.jobs

    async def _settle_not_run(self, service: QueueService, jobs: Iterable[Job], outcomes: list[Outcome]) -> None:
        """Settle jobs that were taken but are not run: buried, quarantined, or of a type that nobody here handles."""
        count, by_id = len(outcomes), {job.id: job for job in jobs}
        refused = await service.access.settle(outcomes)
        self.context.unhandled.note(outcomes, by_id)
        lost = {refusal.lease for refusal in refused}
        kept = tuple([outcome for outcome in outcomes if outcome.lease not in lost])
        reasons = [outcome.reason for outcome in kept if isinstance(outcome, Bury)]
        buried, last = len(reasons), reasons[-1] if reasons else ""
        stats = HandlerStats(errors=buried, retried=len(kept) - buried, buried=buried, lost=len(lost), last_error=last)
        add_up(service, stats)
        if self.context.monitors:
            report = BatchReport(
                service.queue,
                service.number,
                count,
                stats,
                0.0,
                0.0,
                kept,
                lambda one: explain_job(by_id[one.lease.id]),
            )
            tell(self.context.monitors, "batch_started", service.queue, service.number, count)
            tell(self.context.monitors, "batch_ended", report)

    # -- run

    def _start(self, service: QueueService, batch: BatchRun) -> None:
        context, size = self.context, len(batch.taken)
        self._runs[batch] = service
        self._hold(service.queue)
        if service.whole:
            self._batch = batch
        else:
            self._used += size
            service.running += size
        batch.tell = partial(self._job_ended, batch)
        batch.hold = partial(self._thread_given_up, service)
        batch.since = context.time()
        batch.waited = max(0.0, batch.since - batch.taken[0].start_time / 1000)
        batch.stopping = context.stopping
        batch.worker = context.worker
        batch.began = time.monotonic()
        if batch.timeout is not None:
            batch.leases_end_at = batch.began + batch.timeout
            batch.deadline = round((batch.since + batch.timeout) * 1000)
        if context.monitors:
            tell(context.monitors, "batch_started", service.queue, service.number, size)
        if context.aborted:
            batch.finish(WorkerStopped("the worker stopped"))
            batch.ended = True
            self._job_ended(batch)
            return
        service.access.began(batch)
        batch.task = asyncio.get_running_loop().create_task(batch.run())
        batch.task.add_done_callback(partial(self._run_ended, batch))

    def _job_ended(self, batch: BatchRun) -> None:
        self._ended[batch] = None
        self._wake()

    def _run_ended(self, batch: BatchRun, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the run of %r failed", batch, exc_info=error)
            batch.finish(error)
        elif task.cancelled():
            batch.finish(WorkerStopped("the worker stopped"))
        batch.task = None
        batch.ended = True
        self._job_ended(batch)

    def _thread_given_up(self, service: QueueService, ended: asyncio.Future[None]) -> None:
        """A thread does not end: until it does, it counts as what it ran."""
        log.error("a handler of %s was stopped but does not end; until it does, it holds its slot", service.queue)
        if service.whole:
            self._batch = ended
        else:
            self._stuck += 1
            self._used += 1
            service.running += 1
        ended.add_done_callback(partial(self._thread_ended, service))

    def _thread_ended(self, service: QueueService, ended: asyncio.Future[None]) -> None:
        if service.whole:
            self._batch = None
        else:
            self._stuck -= 1
            self._used -= 1
            service.running -= 1
        log.info("a slot of %s is free again", service.queue)
        self._wake()

    # -- a job that may be poison

    async def _run_suspects(self, service: QueueService, suspects: list[BatchRun]) -> None:
        """Run jobs that lost a lease one by one: each a moment after the jobs before it have ended, so that it takes
        few others down with it if it kills the process."""
        while suspects:
            await self._drain(A_MOMENT)
            if self.context.stopping:
                await self._give_back(service, suspects, STOPPED)
            elif runs_alone(suspects[0].taken[0], suspects[0].owner.limits):
                await self._run_alone(service, suspects)
            else:
                self._start(service, suspects.pop(0))
                continue
            return
        await self._drain(A_MOMENT)

    async def _run_alone(self, service: QueueService, batches: list[BatchRun]) -> None:
        """Run the first job, which may kill the process, while nothing else is in hand; the others go back."""
        suspect, *others = batches
        service.one_by_one = True
        if others:
            await self._give_back(service, others, ALONE)
        isolation = self.context.isolation
        await self._drain(service.lease)
        if not await isolation.begin(self, service.lease):
            await self._give_back(service, [suspect], ALONE)
            return
        try:
            self._start(service, suspect)
            # Not for longer than a lease: a job that takes hours must not stop the whole process for hours.
            await self._drain(service.lease)
        finally:
            isolation.end(self)

    async def _give_back(self, service: QueueService, batches: list[BatchRun], reason: str) -> None:
        jobs = [job for batch in batches for job in batch.taken]
        for batch in batches:
            batch.settling = batch.ids()
        await service.access.settle([Retry(job.lease, reason=reason, counts=False) for job in jobs])
        self.context.batches.difference_update(batches)

    # -- settle

    def _collect(self) -> list[Ended]:
        """What has ended since the last look. Its slots are free from now on."""
        if not self._ended:
            return []
        batches, self._ended = self._ended, {}
        found: list[Ended] = []
        now = time.monotonic()
        for batch in batches:
            service = self._runs.get(batch)
            if service is None or (batch.owner.takes_batch and not batch.ended):
                continue
            outcomes = batch.outcomes()
            left = batch.left() if batch.ended and batch.owner.explicit else ()
            last = batch.ended and len(outcomes) + len(batch.settled) + len(left) >= len(batch.taken)
            if not outcomes and not last:
                continue
            if not service.whole:
                self._used -= len(outcomes) + len(left)
                service.running -= len(outcomes) + len(left)
            elif last and self._batch is batch:
                self._batch = None
            said = self.context.settled_by_handlers.said_of(left) if left else []
            found.append(Ended(service, batch, outcomes, now - batch.began, last, said))
        return found

    async def _settle(self, ended: list[Ended]) -> None:
        """Settle the outcomes of jobs that have ended, those of each queue together."""
        queues: dict[QueueService, list[Ended]] = {}
        for one in ended:
            queues.setdefault(one.service, []).append(one)
        try:
            if len(queues) == 1:
                await self._settle_queue(ended)
            else:
                await asyncio.gather(*(self._settle_queue(part) for part in queues.values()))
        finally:
            for one in ended:
                one.batch.settled.update([outcome.lease.id for outcome in one.outcomes])
                one.batch.settling = ()
                if one.last:
                    self._finish(one)
        for one in ended:
            self._report(one)

    async def _settle_queue(self, ended: list[Ended]) -> None:
        access = ended[0].service.access
        outcomes: list[Outcome] = []
        for one in ended:
            one.batch.settling = [outcome.lease.id for outcome in one.outcomes]
            # First the follow-ups: if they cannot be enqueued, nothing is settled, and the jobs ask for them again.
            if one.batch.loose and not await self._add_loose(one):
                one.refused = all_lost(one.outcomes)
            else:
                outcomes += one.outcomes
        refused = await access.settle(outcomes)
        if refused:
            by_lease = {refusal.lease: refusal for refusal in refused}
            for one in ended:
                one.refused = one.refused or [
                    by_lease[outcome.lease] for outcome in one.outcomes if outcome.lease in by_lease
                ]

    async def _add_loose(self, one: Ended) -> bool:
        """See to the follow-ups of the batch as a whole: with the first job that is done, or apart if none is."""
        loose, one.batch.loose = one.batch.loose, []
        if with_follow_ups(one.outcomes, loose):
            return True
        if not one.last:  # one of the jobs that still run may be done
            one.batch.loose = loose
            return True
        return await one.service.access.enqueue(loose)

    def _finish(self, one: Ended) -> None:
        """Nothing of a run is left."""
        batch = one.batch
        self._runs.pop(batch, None)
        self.context.batches.discard(batch)
        self._release(one.service.queue)
        if batch.owner.explicit and (left := batch.left()):
            said = {outcome.lease for outcome in one.said}
            leases = [job.lease for job in left if job.lease not in said]
            self.context.false_crashes.left_to_end(leases, one.service.lease)

    def _report(self, one: Ended) -> None:
        context, service, batch, outcomes = self.context, one.service, one.batch, one.outcomes
        kept = outcomes
        jobs = len(outcomes) + len(one.said)
        if one.refused:
            kept = context.settled_by_handlers.kept(outcomes, one.refused)
            batch.lost |= {refusal.lease.id for refusal in one.refused}
        lost = len(outcomes) - len(kept)
        kept = [*kept, *one.said] if one.said else kept
        failed = tuple([outcome for outcome in kept if type(outcome) is not Done])
        context.jobs_run += jobs
        stats = summary(batch, len(kept) - len(failed), failed, one.ran)
        if batch.stats is not None:  # its handler counts by itself; what became of the jobs is known here
            stats = replace(batch.stats, retried=stats.retried, buried=stats.buried)
        self._count(one, stats)
        if failed:
            context.attempts.note(batch, failed, round(context.time() * 1000))
        if context.monitors:
            cancelled = sum(refusal.why == "cancelled" for refusal in one.refused)
            report = BatchReport(
                service.queue,
                service.number,
                jobs,
                replace(stats, lost=lost - cancelled, cancelled=cancelled) if lost or cancelled else stats,
                time.monotonic() - batch.started if one.last else 0.0,
                batch.waited,
                failed,
                partial(explain, batch),
                batch.owner.type,
            )
            tell(context.monitors, "batch_ended", report)
        if one.last:
            batch.forget()

    def _count(self, one: Ended, stats: HandlerStats) -> None:
        """Jobs ended, each in its slot; `stats` is what their handler did."""
        service, jobs = one.service, len(one.outcomes) + len(one.said)
        rate = service.rate
        busy = one.ran if service.whole else one.ran * jobs / min(self.slots, service.concurrency)
        service.rate = QueueRate(rate.jobs * DECAY + jobs, rate.busy * DECAY + busy)
        add_up(service, stats, jobs, one.ran, one.batch.waited)
        if one.batch.lanes:
            service.served.count(one.batch.lanes, (*one.outcomes, *one.said))


class StoreAccess:
    """The plain access to a queue: straight to the worker's store.

    Each call reads `context.store` anew: the worker may have reconnected since, and closed the old one.
    """

    def __init__(self, service: QueueService, context: WorkerContext) -> None:
        self._service = service
        self._context = context
        self._flows = FlowMembers(lambda: context.store, self.insist)

    async def take(
        self, count: int, settling: asyncio.Future[None] | None = None, max_cost: int | None = None
    ) -> Taken:
        service, context = self._service, self._context
        jobs = await context.store.take(
            service.queue, count, lease=service.lease, max_cost=max_cost, worker=context.worker
        )
        if any(job.key for job in jobs):  # jobs of flows have one
            await self._flows.opening(jobs)
        return Taken(jobs, more=len(jobs) >= count)

    def began(self, batch: RunningBatch) -> None:
        pass

    async def settle(self, outcomes: list[Outcome]) -> list[Refused]:
        """To repeat it is safe: an outcome that was applied already is refused then, and changes nothing."""
        if not outcomes:
            return []
        if self._flows.places:
            await self._flows.ending(outcomes)
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
        self._flows.forget(jobs)

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


def with_follow_ups(outcomes: list[Outcome], follow_ups: Sequence[NewJob]) -> bool:
    """Let the first `Done` carry a batch's follow-ups; False: there is none that could."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Done):
            outcomes[index] = Done(outcome.lease, (*outcome.then, *follow_ups), outcome.result, outcome.waiters)
            return True
    return False


def summary(batch: BatchRun, done: int, failed: Sequence[Outcome], duration: float) -> HandlerStats:
    """Settled jobs of a batch in numbers. A retry that the handler asked for is no error, unless it named one."""
    if not failed:
        return HandlerStats(processed=done, duration=duration)
    results = {outcome.lease.id: batch.results.get(outcome.lease.id) for outcome in failed}
    errors = {id: result.error for id, result in results.items() if isinstance(result, Failed)}
    errors = {id: error for id, error in errors.items() if _is_error(error)}
    return HandlerStats(
        processed=done,
        errors=len(errors),
        retried=sum(isinstance(outcome, Retry) for outcome in failed),
        buried=sum(isinstance(outcome, Bury) for outcome in failed),
        duration=duration,
        last_error=_last_error(batch, errors),
    )


def add_up(service: QueueService, stats: HandlerStats, jobs: int = 0, ran: float = 0.0, waited: float = 0.0) -> None:
    """Add to what the heartbeat says of a queue. Each of the jobs ran for `ran` seconds, and had waited before."""
    sums = service.sums
    service.sums = QueueSums(
        sums.jobs + jobs,
        sums.ran + ran * jobs,
        sums.waited + waited * jobs,
        sums.processed + stats.processed,
        sums.errors + stats.errors,
        sums.retried + stats.retried,
        stats.last_error[:LAST_ERROR] or sums.last_error,
    )


def _is_error(error: BaseException) -> bool:
    return not isinstance(error, WorkerStopped) and (not isinstance(error, RetryLater) or cause_of(error) is not None)


def _last_error(batch: BatchRun, errors: dict[int, BaseException]) -> str:
    if not errors:
        return ""
    id = next(reversed(errors))
    job = next(job for job in batch.taken if job.id == id)
    return batch.mask(job).text(describe(errors[id]))
