"""The worker: owns the processors of one process, and everything around them.

    init → run → shutdown → graceful_stop

`init` brings up everything that a job needs, and takes none: what fails there costs no job anything. `run` then starts
`max_processors` loops over the queues and lasts until `shutdown`. `graceful_stop` lets the current batches end, for as
long as the grace lasts; then their leases are released at once, so that others take the jobs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from accoda.budget.usage import forget_usage
from accoda.budget.wallet import Wallet
from accoda.clock import SystemClock
from accoda.demand.demand import Demand
from accoda.envelope import type_of
from accoda.errors import InvalidInput, StorageError, WorkerStopped
from accoda.flows.listing import count_flows
from accoda.lanes.rules import declare_all
from accoda.model import Head, Stats
from accoda.runtime import heartbeat, served_lanes
from accoda.runtime.drain import is_asked
from accoda.runtime.events import tell
from accoda.runtime.heartbeat import Heartbeat, QueueSums
from accoda.runtime.hooked_access import HookedAccess
from accoda.runtime.host import Host
from accoda.runtime.lease_heartbeat import LeaseHeartbeat
from accoda.runtime.manager import Manager, left_to_others, limits
from accoda.runtime.middleware import check_middleware
from accoda.runtime.options import WorkerOptions, served
from accoda.runtime.pool_access import PoolAccess
from accoda.runtime.processor import Processor, StoreAccess
from accoda.runtime.queue_service import HandlerService, QueueService
from accoda.runtime.retention import EVERY, forget_dead
from accoda.runtime.runners import make_runner
from accoda.runtime.sleeper import Sleeper
from accoda.runtime.system_jobs import SystemJobs
from accoda.runtime.unhandled_types import start_given_back
from accoda.runtime.upkeep import Upkeep
from accoda.runtime.watchdog import stalled
from accoda.runtime.worker_context import WorkerContext
from accoda.settings import Settings
from accoda.storage.common.reconnecting import Backoff

__all__ = ["STOPPED", "Worker", "WorkerOptions"]

STOPPED = "the worker was stopped"
COUNT_FLOWS_EVERY = 15.0
"""Seconds between two counts of the flows, for metrics."""

log = logging.getLogger("accoda.worker")


class Worker:
    """Runs an app's handlers."""

    def __init__(self, app: Host, options: WorkerOptions | None = None) -> None:
        self.app = app
        self.options = options or WorkerOptions()
        self.settings = self.options.settings or Settings.load(worker=self.options.name)
        self.queues = served(app.handlers, app.budget_registry.budgets, self.options.queues)
        self.id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._problem = ""
        self._held_told = ""
        self._promoted: dict[str, int] | None = None
        self._started = False
        self._clock = app.connections.clock or SystemClock()
        self._started_at = self._clock.now()
        self._services: dict[str, QueueService] = {}
        self._processors: dict[Processor, asyncio.Task[None]] = {}
        self._context: WorkerContext | None = None
        self._all_gone = asyncio.Event()
        self._wallet: Wallet | None = None
        self._manager: Manager | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be expected to run jobs."""
        return self.readiness()[0]

    def readiness(self) -> tuple[bool, str]:
        """Whether it can be expected to run jobs, and why not. For any thread."""
        if self._context is not None and self._context.stopping:
            return False, "the worker is stopping"
        if not self._started:
            return False, "the worker is starting"
        return not self.problem, self.problem

    @property
    def problem(self) -> str:
        """What keeps it from running jobs: the store is away, it stalls, no child or thread can be had. Empty: none."""
        troubles = [one.problem for one in self._services.values()]
        return self._all_held() or self._problem or "; ".join(filter(None, troubles))

    def _all_held(self) -> str:
        if not self._processors or not all(processor.held for processor in self._processors):
            return ""
        return "all slots are held by threads whose handlers were stopped but do not end"

    @property
    def jobs_run(self) -> int:
        """How many jobs it has run so far."""
        return self._context.jobs_run if self._context is not None else 0

    async def init(self) -> None:
        """Connect, start what the handlers run in, and make ready to run. Takes no job. A second call does nothing."""
        if self._context is not None:
            return
        connections = self.app.connections
        check_middleware(self.app.middleware)
        context = WorkerContext(await connections.get(), self.id, self.queues, connections.clock)
        context.monitors = self.options.monitors
        self._services = {queue: self._serve(queue, context) for queue in self.queues}
        try:
            await asyncio.gather(*(each.runner.start() for each in self._handlers()))
        except BaseException:
            await self._close_runners()
            raise
        self._heartbeat = LeaseHeartbeat(
            context.batches,
            self._shortest_lease,
            connections.open,
            connections.put_back,
            context.false_crashes.not_extended,
        )
        self._heartbeat.start()
        self._context = context
        self._sleeper = Sleeper(context.rotation, context.store)
        connections.on_settled.add(context.settled_by_handlers.note)
        if self.options.managed and len(self.queues) > 1:
            self._manager = Manager(self.app.storage, self.id, context.clock)
        self._apply_settings()

    def _serve(self, queue: str, context: WorkerContext) -> QueueService:
        """The service of a queue, with what stands between it and the store."""
        handlers, middleware = self.app.handlers[queue], self.app.middleware
        each = [
            # A middleware runs around each single job; a child process has one at a time.
            HandlerService(one, make_runner(one, middleware), bool(middleware) or one.options.run_in == "process")
            for one in handlers.by_type.values()
        ]
        service = QueueService(handlers, each, self.settings)
        service.access = plain = StoreAccess(service, context)
        hooks = each[0].handler.hooks
        if hooks is not None:
            service.access = HookedAccess(hooks, plain, lambda: context.store)
        if service.budgets:
            if self._wallet is None:
                books, clock = self.app.budget_registry.books, self.app.connections.clock
                self._wallet = Wallet(books, self.id, context.rotation.unblock, clock)
            service.access = self._wallet.access(service, service.access, lambda: context.store)
        if any(one.handler.options.run_in == "process" for one in each):
            # Outermost: nothing is reserved while nothing can run.
            service.access = PoolAccess(service, service.access, context.rotation.unblock)
        return service

    def _handlers(self) -> list[HandlerService]:
        return [each for service in self._services.values() for each in service.handlers]

    def _handles(self, queue: str, data: bytes) -> bool:
        return self._services[queue].owner_of(type_of(data)) is not None

    def _shortest_lease(self) -> float:
        return min(service.lease for service in self._services.values())

    async def run(self) -> None:
        """Work until `shutdown`, or, with `burst`, until nothing is left to start.

        To cancel it is a graceful stop: the current batches may end within the setting `grace`, then `CancelledError`
        is raised. A second cancellation gives their jobs back at once.
        """
        await self.init()
        context = self._ready_context()
        upkeep = Upkeep()
        try:
            self._plan(upkeep)
            if not await self._declare_lanes():
                upkeep.add(self._declare_lanes_later())
            await self._manage()
            log.info("worker %s serves %s", self.id, ", ".join(self.queues))
            self._started = True  # from here on jobs are taken
            upkeep.start()
            self._adapt()
            try:
                await self._all_gone.wait()
            except asyncio.CancelledError:
                await self._stop_cancelled()
                raise
        finally:
            context.stopping = True
            await upkeep.close()
            await self._leave()

    async def _declare_lanes(self) -> bool:
        """Store what the handlers say of their lanes, before the first take; whether that worked."""
        declared = {queue: service.options.lanes for queue, service in self._services.items()}
        try:
            await declare_all(self._ready_context().store, declared)
            return True
        except StorageError as error:
            log.warning("cannot declare the rules for lanes, trying again soon: %s", error)
            return False

    async def _declare_lanes_later(self) -> None:
        """The jobs of a store that cannot be written to are run all the same, by the rules that it has."""
        trouble = Backoff(0.2, 5.0)
        while not await self._declare_lanes():
            await trouble.nap()

    async def _stop_cancelled(self) -> None:
        """Let what runs end; if `run` is cancelled again, give it back at once."""
        log.info("cancelled: finishing what runs")
        try:
            await self.graceful_stop()
        except asyncio.CancelledError:  # `run` raises the first one, so neither is swallowed
            self.abort()
            if self._processors:
                await asyncio.wait(self._processors.values())

    def shutdown(self) -> None:
        """Take no more; `run` ends when the current batches are settled. May be called twice."""
        context = self._context
        if context is not None and not context.stopping:
            context.stopping = True
            context.rotation.call_all()
            for processor in self._processors:
                processor.tell_stopping()
            if not self._processors:  # asked to stop before it has begun
                self._all_gone.set()

    async def graceful_stop(self, grace: float | None = None) -> bool:
        """Shut down, let the current batches end, and release what is not done after `grace` seconds.

        True: everything was finished; False: leases had to be released.
        """
        self.shutdown()
        if grace is None:
            grace = self.settings.worker("grace").value
        tasks = list(self._processors.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            if late:
                self.abort()
                await asyncio.wait(late)
        return not (self._context is not None and self._context.aborted)

    def abort(self) -> None:
        """Stop the handlers and give their jobs back at once."""
        self.shutdown()
        context = self._ready_context()
        context.aborted = True
        for processor in self._processors:
            processor.stop(WorkerStopped(STOPPED))

    def release_now(self, timeout: float) -> bool:
        """Give every lease back from another thread: for a worker whose event loop is blocked, before it is ended."""
        return self._heartbeat.release_all(STOPPED, timeout)

    def heartbeat(self) -> Heartbeat:
        """What it says of itself."""
        caps = {queue: cap for queue in self.queues if (cap := self._cap(queue)) is not None}
        single = [one for one in self._services.values() if not one.whole]
        slots = self._slots() if single else 0
        return Heartbeat(
            id=self.id,
            name=self.options.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=self._started_at,
            beat_at=self._clock.now(),
            queues=tuple(self.queues),
            max_processors=self.settings.worker("max_processors").value,
            slots=slots,
            free=min(slots, sum(processor.free for processor in self._processors)),
            concurrency={one.queue: one.concurrency for one in single if one.concurrency < slots},
            batches={one.queue: one.batch_size for one in self._services.values() if one.whole},
            processors=tuple(state for processor in self._processors for state in processor.states),
            rates={queue: service.rate for queue, service in self._services.items() if service.sums.jobs},
            caps=caps,
            ready=self.ready,
            problem=self.problem,
            sums={queue: service.sums for queue, service in self._services.items() if service.sums != QueueSums()},
            draining=self._context is not None and self._context.draining,
            types={queue: types for queue, service in self._services.items() if (types := service.types) != (None,)},
            numbers={queue: one.number for queue, one in self._services.items() if one.number is not None},
        )

    def _plan(self, upkeep: Upkeep) -> None:
        every = self.settings.worker("heartbeat").value
        context = self._ready_context()
        upkeep.add(context.false_crashes.run(lambda: context.store))
        upkeep.every(1.0, self._note_attempts)
        upkeep.every(served_lanes.EVERY, self._note_served)
        if self._wallet is not None:
            leases = [service.lease for service in self._services.values() if service.budgets]
            upkeep.every(min(1.0, min(leases) / 4), self._wallet.renew)
        if self.options.burst:
            upkeep.add(self._stop_when_idle())
            return
        upkeep.add(self._sleeper.run())
        upkeep.add(self._start_given_back())
        if self.options.system_jobs:
            upkeep.add(self._system_jobs().run())
        if self.options.on_flows is not None:
            upkeep.every(COUNT_FLOWS_EVERY, self._count_flows, at_once=True)
        upkeep.every(every, self._beat, at_once=True)
        if self.settings.files:
            upkeep.add(self.settings.watch(changed=self._apply_settings))
        if self._manager is not None:
            upkeep.every(2.0, self._manage)
        upkeep.every(EVERY, self._forget_dead, at_once=True)
        for demand in self._demands():
            upkeep.every(demand.upkeep, partial(self._keep_up, demand), at_once=True)
            if demand.prefetch is not None:
                upkeep.every(demand.prefetch.every, partial(self._prefetch, demand), at_once=True)

    async def _beat(self) -> None:
        """Say that we live; look whether we really work."""
        context = self._ready_context()
        try:
            stats = await context.store.stats()
            self._tell_if_all_held()
            await self._look_for_a_stall(stats)
            if self._problem:
                await self._reconnect()
            self._tell_promoted(stats)
            if self.options.on_stats is not None:
                self.options.on_stats(stats)
            if self.options.on_budgets is not None and self._wallet is not None:
                self.options.on_budgets(await self.app.budget_registry.books.views(), self._wallet.tallies)
            self._drain(await is_asked(context.store, self.id, self._clock.now()))
            ttl = 3 * self.settings.worker("heartbeat").value
            await context.store.write(heartbeat.PREFIX + self.id, heartbeat.encode(self.heartbeat()), ttl=ttl)
        except StorageError as error:
            self._problem = f"the store does not answer: {error}"
            log.warning("no heartbeat: %s", error)

    def _tell_promoted(self, stats: Stats) -> None:
        """How many delayed jobs became ready by their time since the last heartbeat, in any worker or none."""
        known = {queue: stats.queues[queue] for queue in self.queues if queue in stats.queues}
        promoted = {queue: counts.promoted for queue, counts in known.items()}
        for queue, count in promoted.items():
            # A queue that came after the first look had none before it. A store that was emptied counts from 0 again.
            before = self._promoted.get(queue, 0) if self._promoted is not None else count
            if count > before:
                log.debug("promoted %d delayed jobs of %s", count - before, queue)
        self._promoted = promoted

    def _drain(self, asked: bool) -> None:
        """Begin to drain, or end it."""
        context = self._ready_context()
        if context.draining != asked:
            context.draining = asked
            log.info("worker %s %s", self.id, "drains: it takes nothing more" if asked else "takes jobs again")
            context.rotation.call_all()

    async def _count_flows(self) -> None:
        if self.options.on_flows is not None:
            try:
                self.options.on_flows(await count_flows(self._ready_context().store))
            except StorageError as error:  # the heartbeat tells of it
                log.debug("flows are not counted: %s", error)

    async def _start_given_back(self) -> None:
        context = self._ready_context()
        await start_given_back(context.store, self.queues, self._handles, context.clock.now())

    async def _note_attempts(self) -> None:
        context = self._ready_context()
        await context.attempts.write(context.store)

    async def _note_served(self) -> None:
        context = self._ready_context()
        try:
            await asyncio.gather(
                *(one.served.write(context.store, self.id, one.sums.jobs) for one in self._services.values())
            )
        except StorageError as error:
            log.debug("which lanes were served is not noted: %s", error)

    def _tell_if_all_held(self) -> None:
        held = self._all_held()
        if held and not self._held_told:
            log.error("%s; give their calls timeouts of their own, or restart the worker", held)
        self._held_told = held

    async def _look_for_a_stall(self, stats: Stats) -> None:
        context = self._ready_context()
        free = sum(processor.idle for processor in self._processors)
        silent = time.monotonic() - context.rotation.last_take
        after = self.settings.worker("stall_after").value
        # A queue that waits for tokens is not stalled.
        waiting = self.queues if context.draining else context.rotation.blocked()
        queues = [queue for queue in self.queues if queue not in waiting]
        if stalled(stats, queues, free, silent, after):  # or other workers run as many jobs as `Lanes.total` allows
            queues = await self._startable(queues, stats)
        problem = stalled(stats, queues, free, silent, after)
        if problem:
            log.error("stalled: %s; connecting anew", problem)
        elif self._problem:
            log.info("works again")
        self._problem = problem

    async def _startable(self, queues: Iterable[str], stats: Stats) -> list[str]:
        """The queues from which a job could be taken now. Not all with ready jobs are: some are paused, or run as many
        jobs as `Lanes.total` allows."""
        store, known = self._ready_context().store, stats.queues
        ready = [queue for queue in queues if queue in known and known[queue].ready and not known[queue].paused]
        looks = await asyncio.gather(*(store.look(Head(queue)) for queue in ready))
        return [queue for queue, look in zip(ready, looks, strict=True) if look.job is not None]

    async def _reconnect(self) -> None:
        context = self._ready_context()
        context.store = self._sleeper.storage = await self.app.connections.reopen()
        context.rotation.restart()

    async def _manage(self) -> None:
        if self._manager is not None:
            try:
                with suppress(StorageError):
                    await self._manager.run_once()
            finally:
                self._limit()

    async def _forget_dead(self) -> None:
        context = self._ready_context()
        keep = {queue: age for queue, service in self._services.items() if (age := service.keep_dead_for) is not None}
        with suppress(StorageError):
            await forget_dead(context.store, keep)
            logs = {queue: service.log_for for queue, service in self._services.items() if service.budgets}
            if logs:
                await forget_usage(context.store, logs, await self.app.budget_registry.books.clock.now())

    def _demands(self) -> list[Demand]:
        return [demand for queue, demand in self.app.demands.items() if queue in self.queues]

    async def _keep_up(self, demand: Demand) -> None:
        with suppress(StorageError):
            await demand.upkeep_once(self._ready_context().store)
            if self.options.on_demand is not None:
                self.options.on_demand(await demand.view())

    async def _prefetch(self, demand: Demand) -> None:
        with suppress(StorageError):
            await demand.prefetch_once(self._ready_context().store)

    def _system_jobs(self) -> SystemJobs:
        return SystemJobs(self.app.storage, self.app.system_jobs(self.options.on_flow_end))

    async def _stop_when_idle(self) -> None:
        """A burst ends when every queue sleeps, no processor works, the counters agree that nothing is ready, and the
        system jobs, which may bring more, have nothing to do."""
        context = self._ready_context()
        while True:
            await context.rotation.quiet.wait()
            context.rotation.quiet.clear()
            stats = await context.store.stats()
            blocked = context.rotation.blocked()  # a head that waits for tokens is nothing to start now
            ready = await self._startable([queue for queue in self.queues if queue not in blocked], stats)
            if not context.rotation.idle:
                continue
            if not ready and not (self.options.system_jobs and await self._system_jobs().run_once()):
                self.shutdown()
                return
            context.rotation.wake(ready or self.queues)

    def _apply_settings(self, _: object = None) -> None:
        for service in self._services.values():
            service.refresh()
        self._heartbeat.wake()
        self._limit()
        self._adapt()

    def _limit(self) -> None:
        """How many processors each queue may have: the settings' cap, and the manager's last assignment."""
        context = self._ready_context()
        caps = {queue: self._cap(queue) for queue in self.queues}
        current = self._manager.current if self._manager is not None else None
        total = self.settings.worker("max_processors").value
        if current is None:
            context.rotation.limit(caps)
            return
        context.rotation.limit(caps, limits(current, self.id, self.queues, total))
        if not self.options.burst:  # that one serves its queues until they are empty
            context.rotation.leave_to_others(left_to_others(current, self.id, self.queues))

    def _cap(self, queue: str) -> int | None:
        return self.settings.queue(queue, "max_processors", None, self._services[queue].number).value  # type: ignore[no-any-return]

    def _adapt(self) -> None:
        """Start or retire processors until there are `max_processors`; none before the worker runs."""
        context = self._ready_context()
        if not self._started:
            return
        wanted = self.settings.worker("max_processors").value
        slots = -(-self._slots() // wanted)
        # One whose threads do not end counts even if it is retired: they still run.
        active = [processor for processor in self._processors if processor.holds_threads or not processor.retired]
        for processor in active[:wanted]:
            processor.slots = slots
        for processor in active[wanted:]:
            processor.retired = True
        for number in range(len(active), wanted):
            if not context.stopping:
                processor = Processor(number, context, self._services, slots)
                task = asyncio.create_task(processor.run(), name=f"accoda-processor-{number}")
                self._processors[processor] = task
                task.add_done_callback(partial(self._ended, processor))
        context.rotation.call_all()
        tell(context.monitors, "processors_changed", len(self._processors))

    def _slots(self) -> int:
        """How many single jobs run at once: what the settings say, or as many as one of the queues may."""
        said: int | None = self.settings.worker("concurrency").value
        return said or max((one.concurrency for one in self._services.values() if not one.whole), default=1)

    def _ended(self, processor: Processor, task: asyncio.Task[None]) -> None:
        self._processors.pop(processor, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("a processor ended with an error", exc_info=task.exception())
        context = self._ready_context()
        if context.stopping:
            tell(context.monitors, "processors_changed", len(self._processors))
            if not self._processors:
                self._all_gone.set()
        else:
            self._adapt()

    async def _leave(self) -> None:
        context = self._ready_context()
        for task in self._processors.values():
            task.cancel()
        await asyncio.gather(*self._processors.values(), return_exceptions=True)
        self._processors.clear()
        await self._note_attempts()
        await self._note_served()
        with suppress(StorageError):
            await context.false_crashes.run_once(context.store)
        if not self.options.burst:
            with suppress(StorageError):
                if self._manager is not None:
                    await self._manager.close()
                await context.store.write(heartbeat.PREFIX + self.id, b"", ttl=0)
        context.rotation.close()
        self.app.connections.on_settled.discard(context.settled_by_handlers.note)
        if self._wallet is not None:
            await self._wallet.close()
        await self._close_runners()
        self._heartbeat.close()
        log.info("worker %s has left; it ran %d jobs", self.id, context.jobs_run)

    async def _close_runners(self) -> None:
        await asyncio.gather(*(each.runner.close() for each in self._handlers()))

    def _ready_context(self) -> WorkerContext:
        if self._context is None:
            raise InvalidInput("worker", "is not ready; await worker.init() or worker.run() first")
        return self._context
