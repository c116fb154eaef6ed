"""The worker: owns the processors of one process, and everything around them.

    init → run → shutdown → graceful_stop

`run` starts `max_processors` loops over the queues and lasts until `shutdown`. `graceful_stop` lets the current batches
end, for as long as the grace lasts; then their leases are released at once, so that others take the jobs.
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
from typing import TYPE_CHECKING

from accoda.clock import SystemClock
from accoda.demand.demand import Demand
from accoda.errors import InvalidInput, StorageError, WorkerStopped
from accoda.model import Stats
from accoda.runtime import heartbeat
from accoda.runtime.attempts import Attempts
from accoda.runtime.clerk import Clerk, run_ticks
from accoda.runtime.desk import Desk
from accoda.runtime.draining import is_asked
from accoda.runtime.events import Audience
from accoda.runtime.heartbeat import Heartbeat
from accoda.runtime.keeper import Keeper
from accoda.runtime.manager import Manager, limits
from accoda.runtime.options import WorkerOptions, served
from accoda.runtime.processor import Processor
from accoda.runtime.purse import Purse
from accoda.runtime.rates import Rates
from accoda.runtime.retention import EVERY, forget_dead
from accoda.runtime.room import Room
from accoda.runtime.runners import make_runner
from accoda.runtime.sleeper import Sleeper
from accoda.runtime.upkeep import Upkeep
from accoda.runtime.usage import forget_usage
from accoda.runtime.watchdog import stalled
from accoda.settings import Settings

if TYPE_CHECKING:
    from accoda.app import App

__all__ = ["STOPPED", "Worker", "WorkerOptions", "run_until_idle"]

STOPPED = "the worker was stopped"

log = logging.getLogger("accoda.worker")


class Worker:
    """Runs an app's handlers."""

    def __init__(self, app: App, options: WorkerOptions | None = None) -> None:
        self.app = app
        self.options = options or WorkerOptions()
        self.settings = self.options.settings or Settings.load(worker=self.options.name)
        self.queues = served(app, self.options.queues)
        self.id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.problem = ""
        self._clock = app.connections.clock or SystemClock()
        self._started_at = self._clock.now()
        self._processors: dict[Processor, asyncio.Task[None]] = {}
        self._rates = Rates()
        self._room: Room | None = None
        self._all_gone = asyncio.Event()
        self._manager: Manager | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be expected to run jobs; `problem` says why not."""
        return self._room is not None and not self._room.stopping and not self.problem

    @property
    def jobs_run(self) -> int:
        """How many jobs it has run so far."""
        return self._room.jobs_run if self._room is not None else 0

    async def init(self) -> None:
        """Connect, and make ready to run. A second call does nothing."""
        if self._room is not None:
            return
        store = await self.app.connections.get()
        keeper = Keeper(self.app.connections.open, self.app.connections.put_back, asyncio.get_running_loop())
        desks = {queue: self._desk(queue) for queue in self.queues}
        room = Room(store, desks, keeper, self._clock)
        room.audience = Audience((self._rates, *self.options.monitors))
        room.worker = self.id
        room.attempts = Attempts(self.id)
        if any(desk.budgets for desk in desks.values()):
            room.purse = Purse(room, self.app.accounts.office)
        keeper.start()
        self._room = room
        self._sleeper = Sleeper(room.rotation, store)
        if self.options.managed and len(self.queues) > 1:
            self._manager = Manager(self.app.storage, self.id, self._clock)
        self._apply_settings()

    async def run(self) -> None:
        """Work until `shutdown`, or, with `burst`, until nothing is left to start."""
        await self.init()
        room = self._in_room()
        log.info("worker %s serves %s", self.id, ", ".join(self.queues))
        upkeep = self._upkeep()
        upkeep.start()
        try:
            self._adapt()
            await self._all_gone.wait()
        finally:
            room.stopping = True
            await upkeep.close()
            await self._leave()

    def shutdown(self) -> None:
        """Take no more; `run` ends when the current batches are settled. May be called twice."""
        room = self._room
        if room is not None and not room.stopping:
            room.stopping = True
            room.rotation.ring()
            for processor in self._processors:
                processor.tell_stopping()

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
        return not (self._room is not None and self._room.aborted)

    def abort(self) -> None:
        """Stop the handlers and give their jobs back at once."""
        self.shutdown()
        room = self._in_room()
        room.aborted = True
        for processor in self._processors:
            processor.stop(WorkerStopped(STOPPED))

    def release_now(self, timeout: float) -> bool:
        """Give every lease back from another thread: for a worker whose event loop is blocked, before it is ended."""
        return self._in_room().keeper.release_all(STOPPED, timeout)

    def heartbeat(self) -> Heartbeat:
        """What it says of itself."""
        caps = {queue: cap for queue in self.queues if (cap := self._cap(queue)) is not None}
        return Heartbeat(
            id=self.id,
            name=self.options.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=self._started_at,
            beat_at=self._clock.now(),
            queues=tuple(self.queues),
            max_processors=self.settings.worker("max_processors").value,
            processors=tuple(processor.state for processor in self._processors),
            rates=self._rates.snapshot(),
            caps=caps,
            ready=self.ready,
            problem=self.problem,
            sums=self._rates.sums(),
            draining=self._room is not None and self._room.draining,
        )

    def _upkeep(self) -> Upkeep:
        every, room = self.settings.worker("heartbeat").value, self._in_room()
        upkeep = Upkeep()
        upkeep.every(1.0, self._flush)
        upkeep.every(1.0, self._note_attempts)
        if room.purse is not None:
            leases = [desk.lease for desk in room.desks.values() if desk.budgets]
            upkeep.every(min(1.0, min(leases) / 4), room.purse.renew)
        if self.options.burst:
            upkeep.add(self._stop_when_idle())
            return upkeep
        upkeep.add(self._sleeper.run())
        if self.options.errands:
            upkeep.add(Clerk(self.app).run())
        upkeep.every(every, self._beat, at_once=True)
        if self.settings.files:
            upkeep.add(self.settings.watch(changed=self._apply_settings))
        if self._manager is not None:
            upkeep.every(2.0, self._manage)
        upkeep.every(EVERY, self._forget_dead, at_once=True)
        for demand in self._demands():
            upkeep.every(demand.upkeep, partial(self._see_to, demand), at_once=True)
            if demand.prefetch is not None:
                upkeep.every(demand.prefetch.every, partial(self._fetch_ahead, demand), at_once=True)
        return upkeep

    async def _flush(self) -> None:
        for processor in list(self._processors):
            await processor.flush()

    async def _beat(self) -> None:
        """Say that we live; look whether we really work."""
        room = self._in_room()
        try:
            stats = await room.store.stats()
            self._look_for_a_stall(stats)
            if self.problem:
                await self._reconnect()
            if self.options.on_stats is not None:
                self.options.on_stats(stats)
            if self.options.on_budgets is not None and room.purse is not None:
                self.options.on_budgets(await self.app.budget_views(), room.purse.tallies)
            self._drain(await is_asked(room.store, self.id, self._clock.now()))
            ttl = 3 * self.settings.worker("heartbeat").value
            await room.store.write(heartbeat.PREFIX + self.id, heartbeat.encode(self.heartbeat()), ttl=ttl)
        except StorageError as error:
            self.problem = f"the store does not answer: {error}"
            log.warning("no heartbeat: %s", error)

    def _drain(self, asked: bool) -> None:
        """Begin to drain, or end it."""
        room = self._in_room()
        if room.draining != asked:
            room.draining = asked
            log.info("worker %s %s", self.id, "drains: it takes nothing more" if asked else "takes jobs again")
            room.rotation.ring()

    async def _note_attempts(self) -> None:
        room = self._in_room()
        await room.attempts.write(room.store)

    def _look_for_a_stall(self, stats: Stats) -> None:
        room = self._in_room()
        free = sum(processor.state.queue is None for processor in self._processors)
        silent = time.monotonic() - room.rotation.last_take
        after = self.settings.worker("stall_after").value
        held = self.queues if room.draining else room.rotation.held()  # not stalled: there is nothing to pay with
        problem = stalled(stats, [queue for queue in self.queues if queue not in held], free, silent, after)
        if problem:
            log.error("stalled: %s; connecting anew", problem)
        elif self.problem:
            log.info("works again")
        self.problem = problem

    async def _reconnect(self) -> None:
        room = self._in_room()
        room.store = self._sleeper.storage = await self.app.connections.reopen()
        room.rotation.restart()

    async def _manage(self) -> None:
        if self._manager is not None:
            try:
                with suppress(StorageError):
                    await self._manager.run_once()
            finally:
                self._limit()  # also where the store is away: the last word may have ended

    async def _forget_dead(self) -> None:
        room = self._in_room()
        keep = {queue: age for queue, desk in room.desks.items() if (age := desk.keep_dead_for) is not None}
        with suppress(StorageError):
            await forget_dead(room.store, keep)
            logs = {queue: desk.log_for for queue, desk in room.desks.items() if desk.budgets}
            if logs:
                await forget_usage(room.store, logs, await self.app.accounts.office.clock.now())

    def _demands(self) -> list[Demand]:
        return [demand for queue, demand in self.app.demands.items() if queue in self.queues]

    async def _see_to(self, demand: Demand) -> None:
        with suppress(StorageError):
            await demand.upkeep_once(self._in_room().store, self.id)
            if self.options.on_demand is not None:
                self.options.on_demand(await demand.view())

    async def _fetch_ahead(self, demand: Demand) -> None:
        with suppress(StorageError):
            await demand.prefetch_once(self._in_room().store)

    async def _stop_when_idle(self) -> None:
        """A burst ends when every queue sleeps, nobody works, and the counters agree that nothing is ready."""
        room = self._in_room()
        while True:
            await room.rotation.quiet.wait()
            room.rotation.quiet.clear()
            queues = (await room.store.stats()).queues
            waits = room.rotation.held()  # for tokens, as a delayed job does for its moment: nothing to start now
            ready = [q for q in self.queues if q in queues and queues[q].ready and not queues[q].paused]
            ready = [queue for queue in ready if queue not in waits]
            if not room.rotation.idle:
                continue
            if not ready:
                self.shutdown()
                return
            room.rotation.wake(ready)

    def _apply_settings(self, _: object = None) -> None:
        self._limit()
        self._adapt()

    def _limit(self) -> None:
        """How many processors each queue may have: the settings' cap, and the manager's last word while it speaks."""
        room = self._in_room()
        caps = {queue: self._cap(queue) for queue in self.queues}
        current = self._manager.current if self._manager is not None else None
        total = self.settings.worker("max_processors").value
        shares = None if current is None else limits(current, self.id, self.queues, total)
        room.rotation.limit(caps, shares)

    def _cap(self, queue: str) -> int | None:
        number = self.app.handlers[queue].options.number
        return self.settings.queue(queue, "max_processors", None, number).value  # type: ignore[no-any-return]

    def _adapt(self) -> None:
        """Start or retire processors until there are `max_processors`."""
        room = self._in_room()
        wanted = self.settings.worker("max_processors").value
        active = [processor for processor in self._processors if not processor.retired]
        for processor in active[wanted:]:
            processor.retired = True
        for number in range(len(active), wanted):
            if not room.stopping:
                processor = Processor(number, room)
                task = asyncio.create_task(processor.run(), name=f"accoda-processor-{number}")
                self._processors[processor] = task
                task.add_done_callback(partial(self._ended, processor))
        room.rotation.ring()
        room.audience.processors_changed(len(self._processors))

    def _ended(self, processor: Processor, task: asyncio.Task[None]) -> None:
        self._processors.pop(processor, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("a processor ended with an error", exc_info=task.exception())
        room = self._in_room()
        if room.stopping:
            room.audience.processors_changed(len(self._processors))
            if not self._processors:
                self._all_gone.set()
        else:
            self._adapt()

    async def _leave(self) -> None:
        room = self._in_room()
        for task in self._processors.values():
            task.cancel()
        await asyncio.gather(*self._processors.values(), return_exceptions=True)
        self._processors.clear()
        await self._note_attempts()
        if not self.options.burst:
            with suppress(StorageError):
                if self._manager is not None:
                    await self._manager.close()
                await room.store.write(heartbeat.PREFIX + self.id, b"", ttl=0)
        room.rotation.close()
        if room.purse is not None:
            await room.purse.close()
        for desk in room.desks.values():
            await desk.runner.close()
        room.keeper.close()
        log.info("worker %s has left; it ran %d jobs", self.id, room.jobs_run)

    def _desk(self, queue: str) -> Desk:
        handler = self.app.handlers[queue]
        return Desk(handler, make_runner(handler, self.app.middleware), self.settings)

    def _in_room(self) -> Room:
        if self._room is None:
            raise InvalidInput("worker", "is not ready; await worker.init() or worker.run() first")
        return self._room


async def run_until_idle(app: App, queues: Iterable[str] | None = None) -> int:
    """What `App.run_until_idle` does."""
    if not app.handlers:
        return 0
    jobs_run = 0
    while True:
        ticks = await run_ticks(app) if app.schedules else 0
        worker = Worker(app, WorkerOptions(queues=tuple(queues or ()), burst=True, managed=False))
        await worker.run()
        jobs_run += worker.jobs_run
        if not ticks:
            return jobs_run
