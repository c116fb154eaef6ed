"""Random flows on a store, and random things that happen to them, one step after the other, drawn from a seed.

The driver is the producers, the workers and the operators: it starts flows, takes their jobs and settles them, cancels,
removes, purges and revives. After each step coordinators move the flows on until nothing is left to do. Some of them
die between their take and their settle, lose their lease meanwhile, or work at the same time as another.

Each flow has a model beside it that is told what the store has accepted; `agree` compares the two.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from accoda.envelope import unwrap
from accoda.errors import StorageUnavailable
from accoda.flows.batch import FlowBatch
from accoda.flows.builder import Flow, RunningFlow
from accoda.flows.chains import JobCall
from accoda.flows.coordinator import Coordinator, FlowTimers
from accoda.flows.flows import Flows
from accoda.flows.log import key_of
from accoda.flows.members import FlowMembers, flow_place
from accoda.flows.model import LOG, WHENS
from accoda.model import (
    REPORTS,
    STATES,
    Bury,
    ByKey,
    Cancel,
    Change,
    Done,
    Job,
    NewJob,
    Outcome,
    Remove,
    Retry,
    Revive,
    StartNow,
    State,
)
from accoda.payload import encode
from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper
from proof.flows.model import LIVE, FlowModel, ModelNode
from proof.flows.starting import FlowStarter

QUEUES = ("a", "b", "c.d")
TYPES = (None, None, "one", "two")
HOUR = 3600.0
SHORT = 0.02
"""Seconds of the lease of a coordinator that dies: the next one waits for its end."""
ROUNDS = 100
"""Rounds after which a flow that is still not at rest never will be."""

_RUNNING = ("started", "ready", "delayed", "running")


class Disagreement(AssertionError):
    """A flow is not what it must be."""


@dataclass
class Known:
    """A flow that was started, as the driver knows it."""

    id: str
    model: FlowModel
    queues: dict[str, str] = field(default_factory=dict)
    """Of its nodes."""
    ids: dict[str, int] = field(default_factory=dict)
    """Of the jobs of its nodes, as far as they were seen."""
    results: dict[str, bytes] = field(default_factory=dict)
    handed: dict[str, set[str]] = field(default_factory=dict)
    """By node: the nodes before it that were done when it was started."""
    batch: FlowBatch | None = None


class Gate(Wrapper):
    """The store as a coordinator has it: something may happen just before its settle, or its answer is lost."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.before: Callable[[], Awaitable[None]] | None = None
        self.fails: str = ""

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if verb != "settle":
            return await getattr(self._driver.store, verb)(*args, **kwargs)
        if self.before is not None:
            happens, self.before = self.before, None
            await happens()
        if self.fails == "before":
            raise StorageUnavailable("the coordinator died before its settle")
        answer = await self._driver.store.settle(*args)
        refused = {each.lease for each in answer}
        self._driver.note_started([one for one in args[0] if one.lease not in refused])
        if self.fails == "after":
            raise StorageUnavailable("the coordinator died after its settle")
        return answer


class Driver:
    """One run. `play` makes the steps; each draws from `random` alone."""

    def __init__(
        self,
        store: Store,
        seed: int,
        nodes: int,
        *,
        coordinator: Callable[..., Coordinator] = Coordinator,
        strict: bool = True,
    ) -> None:
        self.store = store
        self.random = Random(seed)
        self.most = nodes
        self.name = f"{seed:x}"
        self.flows: dict[str, Known] = {}
        self.held: list[Job] = []
        self.stored: Counter[str] = Counter()
        """How often a step that was accepted stored the job of a node, by its key."""
        self.figures: Counter[str] = Counter()
        self.strict = strict
        self._make = coordinator
        self._coordinator = coordinator()
        self._starter = FlowStarter(store)
        self._members = FlowMembers(lambda: store, self._insist)
        self._numbers = 0
        self._fan_outs: dict[tuple[str, str], list[ModelNode]] = {}

    def expect(self, holds: bool, text: str) -> None:
        """Raise where something does not hold, unless what is driven is broken on purpose."""
        if self.strict and not holds:
            raise Disagreement(text)

    @property
    def view(self) -> Flows:
        return self._starter.flows

    @staticmethod
    async def _insist(what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        return await call()

    # -- steps

    async def clear(self) -> None:
        """Empty what an earlier run left."""
        for queue in (*QUEUES, REPORTS, LOG):
            for state in STATES:
                await self.store.purge(queue, state)

    async def play(self, steps: int, *, check: bool = True) -> None:
        """So many steps; after each of them all flows are moved on, and compared with their models."""
        await self.start()
        for _ in range(steps):
            await self.random.choices(*_STEPS)[0](self)
            await self.rest()
            if check:
                await self.agree()

    async def finish(self) -> None:
        """Run everything to its end."""
        for flow in self.flows.values():
            if flow.batch is not None and flow.model.is_open():
                await self._leave(flow, None)
        for _ in range(ROUNDS):
            await self.rest()
            await self.start_delayed()
            for queue in QUEUES:
                await self.take(queue, 100)
            if not self.held:
                return
            await self.settle([Done(job.lease) for job in self.held])
        self.expect(False, "there is no end of jobs")

    async def start(self) -> None:
        """A flow of random shape, or a batch."""
        if len(self.flows) >= 4:
            return
        self._numbers += 1
        id = f"flow {self.name}-{self._numbers}"
        if self.random.random() < 0.25:
            await self._start_batch(id)
            return
        flow = self._starter.flow("random", key=id)
        known = Known(id, FlowModel())
        names: list[str] = []
        for number in range(self.random.randint(1, self.most)):
            names.append(self._random_node(flow, known, number, names))
        self.flows[id] = known
        await flow.start()
        if self.random.random() < 0.2:
            await flow.start()  # its producer was not told, and starts it again: nothing happens

    def _random_node(self, flow: Flow, known: Known, number: int, names: list[str]) -> str:
        draw, queue, name = self.random, self.random.choice(QUEUES), f"n{number}"
        if number and draw.random() < 0.05:
            flow.on_cancel((queue, draw.choice(TYPES)), number, name=name)
            known.model.add(ModelNode(name, kind="on_cancel"))
        else:
            possible = [one for one in names if known.model.nodes[one].kind != "on_cancel"]
            after = draw.sample(possible, min(len(possible), draw.choice((0, 1, 1, 2, 2, 3, 5))))
            when = draw.choice(WHENS) if after else "all_done"
            delay = HOUR if draw.random() < 0.05 else None
            keep_for = HOUR if draw.random() < 0.2 else 0.0
            flow.add(
                (queue, draw.choice(TYPES)), number, name=name, after=after, when=when, delay=delay, keep_for=keep_for
            )
            known.model.add(ModelNode(name, tuple(after), when))
        known.queues[name] = queue
        return name

    async def _start_batch(self, id: str) -> None:
        words = [word for word in ("on_done", "on_ended", "on_any_dead") if self.random.random() < 0.6]
        known = Known(id, FlowModel({"members": ModelNode("members", kind="gate")}))
        queues = {word: self.random.choice(QUEUES) for word in words}
        ends = {word: JobCall(queue, 1) for word, queue in queues.items()}
        batch = known.batch = self._starter.batch("batch", ends, key=id)
        whens = {"on_done": "all_done", "on_ended": "all_ended", "on_any_dead": "any_dead"}
        for word in words:
            known.model.add(ModelNode(word, ("members",), whens[word]))
            known.queues[word] = queues[word]
        self.flows[id] = known
        await batch.__aenter__()
        await self._more_members(known)

    async def _more_members(self, flow: Known) -> None:
        count, queue = self.random.randint(1, 6), self.random.choice(QUEUES)
        assert flow.batch is not None
        first = sum(node.owner == "members" for node in flow.model.nodes.values())
        for number in range(first + 1, first + count + 1):
            flow.model.add(ModelNode(f"{number}", owner="members"))
            flow.queues[f"{number}"] = queue
        await flow.batch.enqueue_many(queue, range(count))

    async def _leave(self, flow: Known, error: type[Exception] | None) -> None:
        assert flow.batch is not None
        if error is None:
            flow.model.close()
        else:
            flow.model.stop_flow("cancelled")
        await flow.batch.__aexit__(error, None, None)

    async def use_batch(self) -> None:
        """A batch gets members, is closed, or its block raises."""
        flows = [flow for flow in self.flows.values() if flow.batch is not None and flow.model.is_open()]
        if flows:
            flow, kind = self.random.choice(flows), self.random.random()
            if kind < 0.5:
                await self._more_members(flow)
            elif kind < 0.6:
                flow.model.close()
                self.expect(await self.view.close(flow.id), f"{flow.id} could not be closed")
            else:
                await self._leave(flow, Disagreement if kind > 0.9 else None)

    async def take(self, queue: str, count: int) -> None:
        """Jobs of a queue, as a worker takes them."""
        jobs = await self.store.take(queue, count, lease=HOUR)
        await self._members.opening(jobs)
        for job in jobs:
            flow, node = self._place(job)
            known = flow.ids.setdefault(node, job.id)
            self.expect(known == job.id, f"{job.key} was started twice, as job {known} and job {job.id}")
            self._check_results(flow, node, job)
        self.held += jobs

    def _place(self, job: Job) -> tuple[Known, str]:
        place = flow_place(job)
        assert place is not None
        return self.flows[place.id], place.node

    def _check_results(self, flow: Known, node: str, job: Job) -> None:
        """The results are those that were accepted, and none is missing that was there when the node was started."""
        place = unwrap(job.data)[0].flow
        assert place is not None
        given = place.parents
        for name, body in given.items():
            self.expect(
                flow.results.get(name) == body, f"{job.key} was handed a result of {name} that was not accepted"
            )
        missing = flow.handed.get(node, set()) - set(given)
        if flow.model.nodes[node].when in ("all_done", "all_ended"):
            self.expect(not missing, f"{job.key} lacks the results of {missing}")

    async def work(self) -> None:
        """Take some jobs, and settle some of those that are held."""
        await self.take(self.random.choice(QUEUES), self.random.choice((1, 3, 10, 40)))
        many = self.random.randint(0, len(self.held))
        chosen = self.random.sample(self.held, min(many, 20))
        if chosen:
            outcomes = [self._outcome(job) for job in chosen]
            await self.settle(outcomes)
            if self.random.random() < 0.2:
                again = await self.store.settle(outcomes)
                self.expect(len(again) == len(outcomes), "an outcome was accepted twice")

    def _outcome(self, job: Job) -> Outcome:
        kind = self.random.random()
        if kind < 0.12:
            return Bury(job.lease, "no use")
        if kind < 0.22:
            return Retry(job.lease, self.random.choice((0.0, HOUR)))
        then: list[NewJob] = []
        flow, node = self._place(job)
        if self.random.random() < 0.15 and flow.model.nodes[node].kind == "job" and len(flow.model.nodes) < 80:
            self._fan_out(flow, node, then)
        size = self.random.choice((None, 1, 1, 1, 1, 30_000, 40_000))
        result = None if size is None else encode(f"{job.id:>{size}}")
        return Done(job.lease, then, result)

    def _fan_out(self, flow: Known, node: str, then: list[NewJob]) -> None:
        """A running node adds nodes. The model is told when its Done is accepted."""
        running = RunningFlow(self._starter.new_job, flow.id, node, then.append)
        added: list[ModelNode] = []
        for number in range(self.random.randint(1, 4)):
            name, queue = f"{node}.m{number}", self.random.choice(QUEUES)
            after = self.random.sample([one.name for one in added], min(len(added), self.random.choice((0, 0, 1, 2))))
            when = self.random.choice(WHENS) if after else "all_done"
            detached = self.random.random() < 0.2
            running.add(queue, number, name=f"m{number}", after=after, when=when, detached=detached)
            added.append(ModelNode(name, tuple(after), when, owner=node, detached=detached))
            flow.queues[name] = queue
        self._fan_outs[flow.id, node] = added

    async def settle(self, outcomes: list[Outcome]) -> None:
        """Settle, and tell the models what was accepted."""
        jobs = {job.lease: job for job in self.held}
        for job in jobs.values():
            self._members.places[job.id] = cast(Any, flow_place(job))
        given = list(outcomes)
        await self._members.ending(given)
        refused = {each.lease for each in await self.store.settle(given)}
        for outcome in outcomes:
            flow, node = self._place(jobs[outcome.lease])
            added = self._fan_outs.pop((flow.id, node), [])
            if outcome.lease not in refused and isinstance(outcome, Done):
                for each in added:
                    flow.model.add(each)
                flow.results[node] = b"\xc0" if outcome.result is None else outcome.result
                flow.model.end(node, "done")
            elif outcome.lease not in refused and isinstance(outcome, Bury):
                flow.model.end(node, "dead")
        self.held = [job for job in self.held if job.lease not in {outcome.lease for outcome in outcomes}]

    async def interfere(self) -> None:
        """An operator cancels, removes, starts or revives the job of a node."""
        kind = self.random.choice((Cancel, Remove, Revive, Revive, StartNow))
        state = self.random.choice((LIVE, LIVE, "dead")) if kind is Remove else "dead" if kind is Revive else LIVE
        nodes = [
            (flow, node)
            for flow in self.flows.values()
            for node, is_in in flow.model.states().items()
            if is_in == state
        ]
        if not nodes:
            return
        flow, node = self.random.choice(nodes)
        id = await self._id(flow, node)
        change: Change = kind(id)
        applied = await self.store.change([change])
        if applied and kind is Revive:
            flow.model.revive(node)
        elif kind in (Cancel, Remove):
            self.expect(applied == 1, f"{change} of {node}, which is {state}, was not applied")
            flow.model.end(node, "cancelled" if kind is Cancel else "removed")

    async def _id(self, flow: Known, node: str) -> int:
        if node not in flow.ids:
            seen = await self.store.look(ByKey(flow.queues[node], key_of(flow.id, node)))
            self.expect(seen.job is not None, f"{flow.id}: {node} was started, but has no job")
            if seen.job is None:
                return 0
            flow.ids[node] = seen.job.id
        return flow.ids[node]

    async def start_delayed(self) -> None:
        """Let all that is delayed start."""
        for queue in QUEUES:
            delayed = await self.store.browse(queue, "delayed", limit=1000)
            await self.store.change([StartNow(job.id) for job in delayed])

    async def purge(self) -> None:
        """All jobs of a queue in a state are deleted."""
        queue = self.random.choice(QUEUES)
        states: tuple[State, ...] = ("ready", "delayed", "taken", "dead", "dead", "done", "cancelled")
        state = self.random.choice(states)
        jobs = await self.store.browse(queue, state, limit=1000)
        self.expect(await self.store.purge(queue, state) == len(jobs), "a purge deleted another number of jobs")
        if state in ("done", "cancelled"):
            return
        for job in jobs:
            id, _, node = (job.key or "").partition("/")
            self.flows[id].model.end(node, "removed")

    async def stop(self) -> None:
        """A flow is cancelled, or its deadline comes."""
        flow = self.random.choice(list(self.flows.values()))
        running = flow.model.state() == "running"
        if self.random.random() < 0.5:
            self.expect(await self.view.cancel(flow.id) is running, f"{flow.id}: cancel was refused, or it was not")
            flow.model.stop_flow("cancelled")
        elif running:
            record = (await self.store.look(ByKey(LOG, flow.id))).job
            assert record is not None
            await self.store.change([StartNow(record.id)])
            self.expect(await FlowTimers().run_once(self.store) == 1, f"{flow.id}: its record is not run")
            flow.model.stop_flow("expired")

    async def retry(self) -> None:
        """All dead jobs of a flow are revived."""
        flow = self.random.choice(list(self.flows.values()))
        dead = [name for name, state in flow.model.states().items() if state == "dead"]
        revived = await self.view.retry(flow.id)
        self.expect(revived == len(dead), f"{flow.id}: {revived} of {len(dead)} dead jobs were revived")
        for name in dead:
            flow.model.revive(name)

    # -- coordinators

    async def rest(self) -> None:
        """Move all flows on until nothing is left to do, with troubles among it."""
        await self.random.choices(*_TROUBLES)[0](self)
        for _ in range(ROUNDS):
            while await self._coordinator.run_once(cast(Store, Gate(self))):
                pass
            if await self.store.browse(REPORTS, "taken"):
                await self.store.wait([REPORTS], 10.0)  # for the end of a dead coordinator's lease
                continue
            waiting = await self.store.browse(REPORTS, "delayed")
            if not waiting and not await self.store.browse(REPORTS, "ready"):  # such a lease may end at any moment
                break
            await self.store.change([StartNow(job.id) for job in waiting])
        else:
            self.expect(False, "there is no end of rounds")
        for flow in self.flows.values():
            flow.model.take_back()
            names = flow.model.start_all()
            unstarted = [name for name in names if self.stored[key_of(flow.id, name)] == 0]
            self.expect(not unstarted, f"{flow.id}: {unstarted} may start, and were not started")

    def note_started(self, outcomes: Sequence[Outcome]) -> None:
        """Steps of a coordinator were accepted: what they started must be allowed to start, for the first time."""
        for outcome in outcomes:
            for job in outcome.then:
                if job.reports_to is None:
                    continue
                self.stored[job.key or ""] += 1
                self.expect(self.stored[job.key or ""] == 1, f"{job.key} was started twice")
                flow = self.flows[job.reports_to]
                name = (job.key or "").removeprefix(f"{flow.id}/")
                if flow.model.nodes[name].kind == "on_cancel":
                    flow.model.take_back()
                self.expect(flow.model.may_start(name), f"{job.key} was started too early: {flow.model.states()}")
                flow.model.nodes[name].started = True
                flow.handed[name] = {one for one in flow.model.parents(name) if flow.model.nodes[one].end == "done"}
                self.figures["joins"] += len(flow.model.before(name)) > 1

    async def _plain(self) -> None:
        pass

    async def _dies_before(self) -> None:
        """A coordinator takes inboxes and dies."""
        gate = Gate(self)
        gate.fails = "before"
        with suppress(StorageUnavailable):
            await self._make(lease=SHORT).run_once(cast(Store, gate))

    async def _dies_after(self) -> None:
        """The answer of a settle is lost; the coordinator dies, or goes on."""
        gate = Gate(self)
        gate.fails = "after"
        lives = self.random.random() < 0.5
        with suppress(StorageUnavailable):
            await (self._coordinator if lives else self._make()).run_once(cast(Store, gate))
        if not lives:
            self._coordinator = self._make()

    async def _overtaken(self) -> None:
        """A coordinator is so slow that its lease ends, and another does its work before it settles."""
        gate = Gate(self)

        async def other() -> None:
            while not await self._coordinator.run_once(cast(Store, Gate(self))):
                if not await self.store.browse(REPORTS, "taken"):
                    return
                await self.store.wait([REPORTS], 10.0)

        gate.before = other
        slow = self._make(lease=SHORT)
        await slow.run_once(cast(Store, gate))
        self._coordinator = self.random.choice(
            (self._coordinator, slow if self.random.random() < 0.1 else self._make())
        )

    async def _grows(self) -> None:
        """Jobs of the flow end while a coordinator works on it."""
        gate = Gate(self)
        gate.before = self.work
        await self._coordinator.run_once(cast(Store, gate))

    async def _side_by_side(self) -> None:
        """Two coordinators at once."""
        other = self._make()
        await asyncio.gather(*(each.run_once(cast(Store, Gate(self))) for each in (self._coordinator, other)))
        self._coordinator = self.random.choice((self._coordinator, other))

    # -- comparison

    async def agree(self) -> None:
        """Every flow is what its model says."""
        for flow in self.flows.values():
            info = await self.view.get(flow.id)
            summary = await self.view.summary(flow.id)
            wanted = flow.model.state()
            self.expect(info.state == wanted, f"{flow.id} is {info.state}, but must be {wanted}: {flow.model.states()}")
            self.expect(
                summary.state == info.state, f"{flow.id}: its record says {summary.state}, its log {info.state}"
            )
            self.expect(
                (summary.counts, summary.progress, summary.open) == (info.counts, info.progress, info.open),
                f"{flow.id}: its record and its log differ",
            )
            states = {name: LIVE if node.state in _RUNNING else node.state for name, node in info.nodes.items()}
            self.expect(states == _shown(flow.model), f"{flow.id}: {_differences(states, _shown(flow.model))}")
            after = {name: set(node.after) for name, node in info.nodes.items()}
            self.expect(
                after == {name: set(flow.model.parents(name)) for name in after}, f"{flow.id}: its edges differ"
            )


def _shown(model: FlowModel) -> dict[str, str]:
    """The states as people see them: what is for a cancelled flow is skipped where that is over."""
    over = model.state() != "running"
    return {
        name: "skipped" if over and state == "waiting" and model.nodes[name].kind == "on_cancel" else state
        for name, state in model.states().items()
        if model.nodes[name].kind != "gate"
    }


def _differences(found: dict[str, str], wanted: dict[str, str]) -> str:
    return ", ".join(
        f"{name} is {found.get(name)}, but must be {wanted.get(name)}"
        for name in {**found, **wanted}
        if found.get(name) != wanted.get(name)
    )


Step = Callable[[Driver], Awaitable[None]]
_STEPS: tuple[list[Step], list[int]] = (
    [Driver.work, Driver.start, Driver.use_batch, Driver.interfere, Driver.start_delayed, Driver.purge, Driver.stop,
     Driver.retry],
    [60, 5, 10, 15, 5, 2, 2, 3],
)  # fmt: skip
_TROUBLES: tuple[list[Step], list[int]] = (
    [Driver._plain, Driver._dies_before, Driver._dies_after, Driver._overtaken, Driver._grows, Driver._side_by_side],
    [50, 5, 10, 5, 15, 15],
)
