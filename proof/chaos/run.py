"""One run: processes are started, faults strike, then all is calm, and the history is judged."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from accoda import NewJob, StorageError, Store, open_storage
from accoda.payload import encode
from accoda.retry import QUARANTINED, describe
from proof.chaos import choice, lanes, strikes
from proof.chaos.faults import Fault, Target, catalogue, open_target
from proof.chaos.faults.server import Outage, Restore
from proof.chaos.fleet import Fleet, Member, Site
from proof.chaos.flows import close_batches, is_flow_running
from proof.chaos.plan import Plan
from proof.chaos.report import Report, Run, make_report
from proof.chaos.settings import POISON, QUEUES
from proof.chaos.watch import Pace, Watch
from proof.checker import FileSink, FinalState, Options, Recorder, check, final_state, load, record
from proof.checker.ledger import gather
from proof.checker.rules.lanes import most_at_once

Tell = Callable[[str], None]

NEIGHBOURS = 10
STILL = 60.0
"""Seconds without any progress after which an operator would restart the workers. It is counted, and a failure."""
DRAIN = 180.0
"""Seconds for the rest, once all is calm; what is quarantined then, for longer than that, may wait."""


class Lane(NamedTuple):
    """Faults that strike one after the other, `pause` seconds apart at the least. None: side by side."""

    faults: dict[str, Fault]
    schedule: Iterator[tuple[float, str]]
    pause: float | None


class Harness:
    """Everything of one run. The steps are called in order by `run`."""

    target: Target
    direct: str
    store: Store
    watch: Watch
    fleet: Fleet
    backup: Path | None
    began: float

    def __init__(self, plan: Plan, folder: Path, tell: Tell) -> None:
        self.plan = plan
        self.folder = folder
        self.tell = tell
        self.rng = random.Random(plan.seed)
        self.recorder = Recorder("harness", FileSink(folder / "harness.history"))
        self.strikes: Counter[str] = Counter()
        self.failures: list[str] = []
        self.hand_restarts = 0
        self.server_kills = 0
        self.now = ""
        self.pace = Pace()
        self._tasks: set[asyncio.Task[None]] = set()

    async def prepare(self, stack: AsyncExitStack) -> None:
        """Start the servers and the processes."""
        plan = self.plan
        self.target = await stack.enter_async_context(open_target(plan.storage, self._note))
        stack.push_async_callback(self._end_strikes)  # before the servers go: a strike may start one again
        site = Site(self.target.url, self.folder, plan.lease, plan.rate, plan.seed, self.target.environment)
        self.fleet = Fleet(plan.roles(), site)
        stack.push_async_callback(self.fleet.end)
        # Past the proxy, where there is one: the harness itself is not under fire.
        self.direct = getattr(self.target.server, "url", None) or self.target.url
        self.backup = await self._copy() if "restore" in plan.faults else None
        self.store = await open_storage(self.direct)
        stack.push_async_callback(lambda: self.store.close())
        self.watch = Watch(self.store)
        self.fleet.start(self.fleet.members)
        self.began = time.monotonic()

    async def _copy(self) -> Path | None:
        """A copy of the store without a job; None where there is nothing to copy."""
        await (await open_storage(self.direct)).close()  # makes its tables
        if self.target.group is not None:
            return None
        if self.target.server is not None:
            return await asyncio.to_thread(self.target.server.copy)
        return Path(shutil.copyfile(self._file, self._file.with_suffix(".backup")))

    @property
    def _file(self) -> Path:
        """Of SQLite."""
        return Path(self.direct.removeprefix("sqlite:///"))

    async def _reopen(self, replace_file: Callable[[], None]) -> None:
        """Replace the file of SQLite while nothing has it open."""
        await self.store.close()
        replace_file()
        self.store = self.watch.store = await open_storage(self.direct)

    # -- the fire

    async def fire(self) -> None:
        """Let the lanes of faults run side by side until the time is over and the jobs are there."""
        series = [asyncio.create_task(self._run_lane(lane)) for lane in self._lanes()]
        watching = asyncio.create_task(self.watch.run())
        ruling = asyncio.create_task(lanes.change_rules(self._recorded, random.Random(self.plan.seed)))
        try:
            while not self._is_over():
                await asyncio.sleep(0.25)
                self._progress("fire")
                await self._help_if_stuck()
        finally:
            for task in [*series, watching, ruling]:
                task.cancel()
            await asyncio.gather(*series, watching, ruling, return_exceptions=True)
        # What was begun is brought to its end: a stopped process goes on, a server comes back.
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _recorded(self) -> Store:
        return record(self.store, self.recorder)

    def _is_over(self) -> bool:
        burnt = time.monotonic() - self.began
        plan, count = self.plan, self.watch.count
        enough = (
            count.finished + count.open >= plan.jobs
            and (self.kills >= plan.kills or not self._has("kill"))
            and (self.server_kills >= plan.server_kills or not self._has(*choice.SERVER_KILLS))
        )
        return burnt >= plan.seconds * plan.longest or (burnt >= plan.seconds and enough)

    def _has(self, *names: str) -> bool:
        return not self.plan.faults.isdisjoint(names)

    @property
    def kills(self) -> int:
        return sum(member.ended[-9] for member in self.fleet.workers)

    def _note(self, kind: str, **fields: object) -> None:
        self.server_kills += kind == "server down" and fields.get("how") == "kill"
        self.recorder.note(kind, **fields)

    def _lanes(self) -> list[Lane]:
        """Kills, mischief and the server's faults, each with a schedule of its own."""
        plan, fleet, note = self.plan, self.fleet, self._note
        kills: list[Fault] = [strikes.Kill(fleet, note), *strikes.points(fleet, note)]
        mischief: list[Fault] = [
            strikes.Stop(fleet, note, plan.lease),
            strikes.HoldGil(fleet, note, plan.lease),
            strikes.Poison(self._poison, note),
            strikes.KillProducer(fleet, note),
        ]
        servers: list[Fault] = list(catalogue(self.target))
        if plan.storage == "sqlite":
            servers.append(strikes.KillAll(fleet, note))
            servers.append(strikes.LongLock(self._file, note, plan.lease))
            if self.backup is not None:
                servers.append(strikes.PutBack(fleet, note, self._file, self.backup, self._reopen))
        else:
            servers += [Outage(self.target, plan.lease), Restore(self.target, self.backup)]
        found = []
        for faults, every, order, pause in (
            (kills, plan.kill_every, choice.in_turn, 0.3),
            (mischief, plan.mischief_every, choice.in_turn, None),
            (servers, plan.server_every, choice.kills_between, plan.server_every * 0.65),
        ):
            chosen = {fault.name: fault for fault in faults if fault.name in plan.faults}
            rng = random.Random(self.rng.random())
            found.append(Lane(chosen, choice.lane(rng, order(rng, sorted(chosen)), every), pause))
        return found

    async def _run_lane(self, lane: Lane) -> None:
        """Strike when it is time. After a long strike the next ones come sooner, until the schedule is kept again."""
        rng = random.Random(self.rng.random())
        for at, name in lane.schedule:
            await asyncio.sleep(max(lane.pause or 0.0, self.began + at - time.monotonic()))
            self.strikes[name] += 1
            self.now = name
            task = asyncio.create_task(self._strike(lane.faults[name], rng), name=name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if lane.pause is not None:
                await asyncio.shield(task)  # the lane may be ended; what it began is undone in `fire`

    async def _strike(self, fault: Fault, rng: random.Random) -> None:
        try:
            await fault.strike(rng)
        except Exception as error:  # the harness is at fault, or a server did not come back: the run must say so
            self.failures.append(f"the fault {fault.name!r} could not be done: {describe(error)}")

    async def _end_strikes(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _poison(self) -> None:
        payloads = [POISON, *range(NEIGHBOURS)]
        with suppress(StorageError):  # the server may be away: then there is no poison this time, or it is not known
            async with record(await open_storage(self.direct), self.recorder) as store:
                await store.enqueue([NewJob("poison", encode(payload)) for payload in payloads])

    # -- calm

    async def drain(self) -> bool:
        """No more faults and no more jobs: what is there must be finished. False: it was not."""
        await self.fleet.stop(self.fleet.producers)
        async with record(await open_storage(self.direct), self.recorder) as store:
            await close_batches(store)
            for queue in lanes.QUEUES:
                while not await lanes.set_rules(store, queue, lanes.CALM):
                    await asyncio.sleep(0.2)
        end = time.monotonic() + DRAIN
        self.watch.moved_at = time.monotonic()
        while not (await self.watch.look() and self.watch.count.open == 0 and not await is_flow_running(self.store)):
            if time.monotonic() > end:
                return await self._only_quarantined()
            self._progress("calm")
            await self._help_if_stuck()
            await asyncio.sleep(0.1)
        return True

    async def _only_quarantined(self) -> bool:
        """Whether all that is left are jobs whose workers were killed so often that they wait for longer."""
        queues = (await self.store.stats()).queues
        left = [job for queue in QUEUES for job in await self.store.browse(queue, "delayed", limit=10_000)]
        active = any(
            queues[queue].ready or queues[queue].held or queues[queue].taken for queue in QUEUES if queue in queues
        )
        return not active and all(job.crashes >= QUARANTINED for job in left)

    async def leave(self) -> list[Member]:
        """SIGTERM to all workers: those that did not leave by themselves."""
        return await self.fleet.stop(self.fleet.workers)

    async def _help_if_stuck(self) -> None:
        if self.watch.still_for < STILL:
            return
        self.hand_restarts += 1
        self.watch.moved_at = time.monotonic()
        self.recorder.note("hand restart")
        for member in self.fleet.workers:
            await strikes.kill(self.recorder.note, member, "hand restart")

    def _progress(self, phase: str) -> None:
        self.pace.look()
        seconds = int(time.monotonic() - self.began)
        count = self.watch.count
        self.tell(
            f"{self.plan.storage} {phase} {seconds // 60}:{seconds % 60:02}  "
            f"done {count.done:,}  open {count.open:,}  kills {self.kills}+{self.server_kills}  {self.now}"
        )


async def run(plan: Plan, tell: Tell) -> Report:
    """The whole of it. The files are left to the caller, unless it ends before its time."""
    folder = Path(tempfile.mkdtemp(prefix="accoda-chaos-"))
    async with AsyncExitStack() as stack:
        files = stack.enter_context(ExitStack())
        files.callback(shutil.rmtree, folder, ignore_errors=True)
        harness = Harness(plan, folder, tell)
        await harness.prepare(stack)
        await harness.fire()
        drained = await harness.drain()
        late = await harness.leave()
        tell(f"{plan.storage}: reading what is left")
        final = await final_state(harness.store)
        files.pop_all()
    tell(f"{plan.storage}: judging the history")
    return await asyncio.to_thread(_judge, harness, final, drained, late)


def _judge(harness: Harness, final: FinalState, drained: bool, late: Sequence[Member]) -> Report:
    history = load(sorted(harness.folder.glob("*.history")))
    usual, away = Options(), harness.pace.worst
    options = Options(
        slack=usual.slack + away, drift=usual.drift + away, takes_anew=harness.plan.storage == "postgres",
        gives_fewer=harness.plan.storage == "tarantool",
    )  # fmt: skip
    return make_report(
        Run(
            plan=harness.plan,
            folder=harness.folder,
            history=history,
            final=final,
            verdict=check(history, final, options=options),
            most_in_a_lane=max(most_at_once(gather(life), options) for life in history.lives()),
            strikes=harness.strikes,
            members=harness.fleet.members,
            drained=drained,
            late=[member.client for member in late],
            hand_restarts=harness.hand_restarts,
            failures=harness.failures,
            seconds=time.monotonic() - harness.began,
        )
    )
