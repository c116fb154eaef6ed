"""All processes of a run, the replacement of those that die, and the order of events from the first job to the last."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from random import Random
from typing import Any

from accoda.errors import AccodaError
from accoda.flows.model import LOG
from accoda.model import Done, Outcome
from accoda.operations.history.recorder import QUEUE as HISTORY
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.settings import Settings
from accoda.storage.memory import MemoryStorage
from proof.checker import MemorySink
from proof.simulation import clients
from proof.simulation.faults import Faults
from proof.simulation.flows import JOBS_FOR_A_FLOW, calm_flows, run_flows
from proof.simulation.plan import Mix, Network, Plan, draw
from proof.simulation.process import Process
from proof.simulation.scheduler import Scheduler
from proof.simulation.server import Server
from proof.simulation.workload import HANDLED, MAX_CRASHES, RAW, install

Main = Callable[[Process], Coroutine[Any, Any, None]]


class Cluster:
    """One store and all processes that use it."""

    def __init__(self, scheduler: Scheduler, plan: Plan, core: type[MemoryStorage]) -> None:
        self.scheduler = scheduler
        self.plan = plan
        self._draws = scheduler.stream("cluster")
        self.mix: Mix = draw(plan, self._draws)
        self.sink = MemorySink()
        self.server = Server(scheduler, core, self.mix.network)
        self.handler_draws = scheduler.stream("handlers")
        self.processes: list[Process] = []
        self.past: list[Process] = []
        """Those that ended or were killed: kept, so that nothing of them is cleaned up."""
        self.jobs_left = plan.jobs
        self.producers = 3
        self.flows_left = plan.jobs // JOBS_FOR_A_FLOW
        self.flow_ids: list[str] = []
        """Of the flows that were started, or may have been."""
        self.calm = False
        self.closing = False
        self.finished: set[tuple[int, int]] = set()
        """The runs that came out well: (id, attempts)."""
        self.poisoned: list[tuple[int, int]] = []
        self.kills = 0
        self.pauses = 0
        self.drained_in = 0.0
        self._started = 0

    def stream(self, name: str) -> Random:
        return self.scheduler.stream(name)

    def now_ns(self) -> int:
        return int(self.scheduler.now * 1e9)

    # -- the order of events

    async def run(self, harness: Process) -> None:
        """From the first job until all are done and every process has ended."""
        for number in range(self.plan.workers):
            self._begin(f"worker{number}", self._work(number))
        for number in range(self.producers):
            self._begin(f"producer{number}", clients.produce)
        self._begin("deal0", clients.serve_deals)
        self._begin("deal1", clients.serve_deals)
        self._begin("spend0", clients.serve_costly)
        self._begin("rules", clients.change_rules)
        self._begin("flows0", run_flows)
        self._begin("flows1", run_flows)
        if "admin" in self.mix.faults:
            self._begin("admin", clients.administer)
        await Faults(self).run()
        await self._calm_down(harness)
        if not await self._drained():
            return
        await self._close()

    async def _calm_down(self, harness: Process) -> None:
        """No more faults, and nothing stays paused."""
        self.calm = True
        self.scheduler.tell("calm")
        self.server.come_back()
        self.server.network = Network(latency=self.mix.network.latency)
        for process in self.processes:
            process.trap = None
        store = await harness.app.connections.get()
        for queue in HANDLED + RAW:
            await store.pause(queue, 0)
        while any(process.name.startswith("rules") for process in self.processes):
            await asyncio.sleep(0.5)
        for queue in clients.RULED:
            await store.set_lanes(queue, clients.CALM_RULES)
        while any(process.name.startswith("flows") for process in self.processes):
            await asyncio.sleep(0.5)
        await calm_flows(harness.app, self)

    async def _drained(self) -> bool:
        """Wait until nothing is left to run: that is what is promised once the faults have stopped."""
        since = self.scheduler.now
        deadline = since + self.plan.drain_within
        while left := await self._left():
            if self.scheduler.now > deadline:
                text = ", ".join(f"{queue}: {counts}" for queue, counts in left.items())
                self.scheduler.problems.append(f"work is left {self.plan.drain_within:g} s after the faults: {text}")
                return False
            await asyncio.sleep(0.5)
        self.drained_in = self.scheduler.now - since
        return True

    async def _left(self) -> dict[str, str]:
        queues = (await self.server.core.stats()).queues
        return {
            queue: f"{count.ready} ready, {count.held} held, {count.delayed} delayed, {count.taken} taken"
            for queue, count in queues.items()
            # The recorder's one job always waits for its next round, and flows that ended are kept.
            if queue not in (HISTORY, LOG) and (count.ready or count.held or count.delayed or count.taken)
        }

    async def _close(self) -> None:
        """Every process ends as on SIGTERM."""
        self.closing = True
        deadline = self.scheduler.now + 60.0
        while self.processes:
            for process in self.processes:
                process.leave()
            if self.scheduler.now > deadline:
                names = ", ".join(process.name for process in self.processes)
                self.scheduler.problems.append(f"did not end within 60 s: {names}")
                return
            await asyncio.sleep(0.5)

    # -- what is looked at on the way, beside the calls

    def look_at(self, outcomes: Sequence[Outcome]) -> None:
        """A worker may say `Done` only of a run that its handler has finished."""
        finished = self.finished
        for outcome in outcomes:
            if type(outcome) is Done:
                lease = outcome.lease
                if (lease.id, lease.attempts) not in finished and lease.queue in HANDLED:
                    self.scheduler.problems.append(f"{lease} is said to be done, but its handler has not finished")

    def look_back(self) -> Iterator[str]:
        """What can be said at the end."""
        queues = {name: queue.counts for name, queue in self.server.core._queues.items()}
        stalls = [text for text in self.scheduler.logged if "stalled:" in text]
        yield from (text for text in self.scheduler.logged if text not in stalls)
        if self.mix.fair:
            ended = {name: queues[name]["expired"] for name in HANDLED if name in queues}
            yield from (f"{n} leases of {name} ended, though nothing went wrong" for name, n in ended.items() if n)
            yield from stalls
        runs = Counter(id for id, _ in self.poisoned)
        if "admin" not in self.mix.faults:  # a revival gives a job new lives
            # Where an answer is lost, a worker may take back a crash that was one.
            most = {id: MAX_CRASHES + self.server.taken_back[id] for id in runs}
            yield from (f"job {id} killed {count} workers" for id, count in runs.items() if count > most[id])

    # -- processes

    def _begin(self, name: str, main: Main) -> None:
        self._started += 1
        skew = self._draws.uniform(-3600, 3600) if "skew" in self.mix.faults else 0.0
        process = Process(self, f"{name}.{self._started}", self._started, skew)
        self.processes.append(process)
        process.start(main(process), lambda ended: self._over(ended, name, main))

    def _over(self, process: Process, name: str, main: Main) -> None:
        """A process is gone: another takes its place after a while, as under a supervisor."""
        self.processes.remove(process)
        self.past.append(process)
        done = (
            name.startswith("admin")
            or (name.startswith("rules") and self.calm)
            or (name.startswith("producer") and self.jobs_left <= 0)
        )
        done = done or (name.startswith("flows") and (self.flows_left <= 0 or self.calm))
        if not self.closing and not done:
            pause = 0.1 + self._draws.random() * 3.0
            self.server.loop.post(self.scheduler.now + pause, self._begin_again, name, main)

    def _begin_again(self, name: str, main: Main) -> None:
        if not self.closing:
            self._begin(name, main)

    def _work(self, number: int) -> Main:
        """A worker; all but the first serve only some of the queues."""
        queues = HANDLED if number == 0 else tuple(q for q in HANDLED if self._draws.random() < 0.7) or ("mail",)
        settings = {"max_processors": 1 + number % 4, "heartbeat": 2.0, "stall_after": 10.0}

        async def main(process: Process) -> None:
            install(process)
            options = WorkerOptions(queues=queues, settings=Settings.load((), environ={}, overrides=settings))
            worker = Worker(process.app, options)
            await worker.init()
            process.worker = worker
            await worker.run()
            await process.app.close()

        return main

    def crashed(self, process: Process, error: Exception) -> None:
        """A main function failed. Without a store it may; the supervisor starts it again."""
        if not isinstance(error, AccodaError):
            self.scheduler.problems.append(f"{process.name} ended with {error!r}")
