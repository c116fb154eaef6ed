"""Flows that are broken on purpose, each in one way: in what a coordinator decides, in what it stores, in the store.

The driver of `proof.flows` does random things to them, and the rules on flows must find it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace

from accoda.envelope import unwrap, wrap
from accoda.flows import log as flow_log
from accoda.flows.coordinator import Coordinator, Step, node_job
from accoda.flows.graph import FlowGraph, NodeRecord
from accoda.flows.log import FlowLog
from accoda.flows.model import NodeState
from accoda.flows.reading import FlowReader
from accoda.model import Done, NewJob, ReportKind
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import Record
from accoda.storage.protocol import Store
from proof.checker.call_log import CallLog
from proof.checker.checking import Verdict, check
from proof.checker.final import final_state
from proof.checker.recorder import Recorder, record
from proof.checker.sinks import MemorySink
from proof.flows.driver import Driver

Breakage = TypeVar("Breakage", bound=type)


class FlowMutant(Struct, frozen=True):
    """What is broken, and the rule that must catch it."""

    rule: str
    name: str = ""
    graph: type[FlowGraph] = FlowGraph
    coordinator: type[Coordinator] = Coordinator
    store: type[MemoryStorage] = MemoryStorage


RIGHT = FlowMutant("")
"""Nothing is broken."""
FLOW_MUTANTS: list[FlowMutant] = []


def mutant(rule: str) -> Callable[[Breakage], Breakage]:
    """Registers a broken graph, coordinator or store."""

    def register(broken: Breakage) -> Breakage:
        part = next(
            name
            for name, kind in (("graph", FlowGraph), ("coordinator", Coordinator), ("store", MemoryStorage))
            if issubclass(broken, kind)
        )
        FLOW_MUTANTS.append(FlowMutant(rule, broken.__name__, **{part: broken}))
        return broken

    return register


@mutant("joins")
class FiresEarly(FlowGraph):
    """A join starts when the first node before it is done."""

    def _verdict_of(self, node: NodeRecord) -> NodeState | None:
        if node.state == "waiting" and node.spec.kind == "job" and node.done and self.stopped is None:
            self.startable[node.number] = None
            return None
        return super()._verdict_of(node)


@mutant("joins")
class NeverFires(FlowGraph):
    """A join of several nodes is forgotten."""

    def _verdict_of(self, node: NodeRecord) -> NodeState | None:
        changed = super()._verdict_of(node)
        if len(node.before) > 1:
            self.startable.pop(node.number, None)
        return changed


@mutant("joins")
class FiresAgain(FlowGraph):
    """A join whose member comes to another state starts again."""

    def _verdict_of(self, node: NodeRecord) -> NodeState | None:
        if node.state == "done" and node.before and self.stopped is None:
            self.startable[node.number] = None
        return super()._verdict_of(node)


@mutant("joins")
class GoesOnThoughStopped(FlowGraph):
    """What waits in a flow that was cancelled is started all the same."""

    def stop(self, how: Any, at: int) -> None:
        waiting = [node.number for node in self.nodes if node.state == "waiting" and node.spec.kind == "job"]
        super().stop(how, at)
        self.startable.update(dict.fromkeys(waiting[:1]))


@mutant("flows end")
class SkipsTooMuch(FlowGraph):
    """A node that runs whatever becomes of those before it is skipped if one of them is dead."""

    def _verdict_of(self, node: NodeRecord) -> NodeState | None:
        changed = super()._verdict_of(node)
        if node.state in ("waiting", "skipped") and node.spec.when == "all_ended" and node.dead:
            self.startable.pop(node.number, None)
            return "skipped" if node.state == "waiting" else None
        return changed


@mutant("flows end")
class RunsForEver(FlowGraph):
    """A flow whose last node is dead goes on running."""

    def state(self) -> Any:
        state = super().state()
        return "running" if state == "failed" else state


class _Spoilt(Coordinator):
    """Spoils the step that it would make."""

    async def _step(self, store: Store, flow: FlowLog, *args: Any) -> Step:
        step = await super()._step(store, flow, *args)
        self.spoil(step, flow)
        return step

    def spoil(self, step: Step, flow: FlowLog) -> None:
        raise NotImplementedError


@mutant("nodes")
class StoresTwice(_Spoilt):
    """The job of a join that is done is stored again, which the log does not tell."""

    def spoil(self, step: Step, flow: FlowLog) -> None:
        joins = [node for node in flow.graph.nodes if node.state == "done" and node.before]
        step.then[:0] = [node_job(flow, node) for node in joins[-1:]]


@mutant("nodes")
class StartsWhatItMustNot(_Spoilt):
    """The job of a node that waits is stored, which the log does not tell."""

    def spoil(self, step: Step, flow: FlowLog) -> None:
        waiting = [node for node in flow.graph.nodes if node.state == "waiting" and node.spec.kind == "job"]
        step.then[:0] = [node_job(flow, node) for node in waiting[:1]]


@mutant("flows end")
class WritesTheRoundAlone(_Spoilt):
    """The log says that nodes were started, but their jobs are not stored."""

    def spoil(self, step: Step, flow: FlowLog) -> None:
        step.then = [job for job in step.then if job.reports_to is None]


@mutant("flows end")
class LosesOneOfMany(_Spoilt):
    """Of several jobs that start together the last is not stored."""

    def spoil(self, step: Step, flow: FlowLog) -> None:
        jobs = [job for job in step.then if job.reports_to is not None]
        step.then = [job for job in step.then if len(jobs) < 2 or job is not jobs[-1]]


@mutant("results")
class HandsOverAnotherResult(_Spoilt):
    """Results of nodes are mixed up."""

    def spoil(self, step: Step, flow: FlowLog) -> None:
        step.then = [_with_results(job, _mixed_up) for job in step.then]


def _mixed_up(given: dict[str, bytes]) -> dict[str, bytes]:
    return dict(zip(given, reversed(given.values()), strict=True))


@mutant("results")
class ForgetsAResult(_Spoilt):
    """The last result is left out."""

    def spoil(self, step: Step, flow: FlowLog) -> None:
        step.then = [_with_results(job, lambda given: dict(list(given.items())[:-1])) for job in step.then]


def _with_results(job: NewJob, change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> NewJob:
    metadata, payload = unwrap(job.data)
    place = metadata.flow
    if job.reports_to is None or place is None:
        return job
    changed = replace(metadata, flow=replace(place, parents=change(place.parents)))
    return replace(job, data=wrap(payload, changed))


@mutant("joins")
class WritesThoughRefused(Coordinator):
    """A coordinator whose lease was lost stores its step all the same."""

    async def _settle(self, store: Store, steps: Sequence[Step]) -> None:
        refused = await store.settle([step.outcome() for step in steps])
        grown = {each.lease for each in refused if each.why == "grown"}
        await store.settle([step.outcome(keep=True) for step in steps if step.inbox.lease in grown])
        lost = {each.lease for each in refused} - grown
        await store.enqueue([job for step in steps if step.inbox.lease in lost for job in step.then])


@mutant("reports")
class ForgetsWhatCameMeanwhile(Coordinator):
    """The inbox is done with, though it has grown since it was read."""

    async def _settle(self, store: Store, steps: Sequence[Step]) -> None:
        outcomes = [step.outcome() for step in steps]
        await store.settle([replace(each, waiters=None) if isinstance(each, Done) else each for each in outcomes])


@mutant("joins")
class TrustsItsMemory(Coordinator):
    """A coordinator that goes by the log as it knew it, whatever others have written since."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reader = _Stale()


class _Stale(FlowReader):
    known: dict[str, FlowLog] = {}  # noqa: RUF012  # all of them share it, as if each had read the log long ago

    async def read(self, store: Store, id: str) -> FlowLog | None:
        log = await super().read(store, id)
        first = self.known.setdefault(id, log) if log is not None else None
        return first if first is not None and len(self.known) % 2 else log


class _Silent(MemoryStorage):
    """Does not report some kind of end."""

    silent: tuple[ReportKind, ...] = ()

    def _report(self, record: Record, kind: ReportKind, now: int, body: bytes | None = None) -> None:
        if kind not in self.silent or record.id % 3:
            super()._report(record, kind, now, body)


@mutant("reports")
class LosesReportsOfDone(_Silent):
    silent = ("done",)


@mutant("reports")
class LosesReportsOfDead(_Silent):
    silent = ("dead",)


@mutant("reports")
class LosesReportsOfCancelled(_Silent):
    silent = ("cancelled",)


@mutant("reports")
class LosesReportsOfRevived(_Silent):
    silent = ("revived",)


@mutant("flows end")
class LosesReportsOfRemoved(_Silent):
    silent = ("removed",)


@mutant("reports")
class ReportsDeathAsSuccess(MemoryStorage):
    def _report(self, record: Record, kind: ReportKind, now: int, body: bytes | None = None) -> None:
        super()._report(record, "done" if kind == "dead" else kind, now, body)


@mutant("reports")
class ReportsAnotherResult(MemoryStorage):
    def _report(self, record: Record, kind: ReportKind, now: int, body: bytes | None = None) -> None:
        super()._report(record, kind, now, b"\xa5other" if kind == "done" and body else body)


async def _play(mutant: FlowMutant, seed: int) -> Verdict:
    sink = MemorySink()
    async with mutant.store() as bare:
        store = record(cast("Store", bare), Recorder("driver", sink))
        with patch.object(flow_log, "FlowGraph", mutant.graph):
            driver = Driver(store, seed, 1 + seed % 15, coordinator=mutant.coordinator, strict=mutant is RIGHT)
            await driver.play(20, check=False)
            await driver.finish()
        return check(CallLog.of(sink), await final_state(cast("Store", bare)))


def judge_flows(seed: int, mutant: FlowMutant = RIGHT) -> Verdict:
    """Do random things to flows, broken in this way, and hold the calls against all rules."""
    return asyncio.run(_play(mutant, seed))


def catch_flow(mutant: FlowMutant, seeds: int = 20) -> int | None:
    """The first seed with which the mutant's own rule finds it out; None if there is none."""
    for seed in range(seeds):
        if any(violation.rule == mutant.rule for violation in judge_flows(seed, mutant).violations):
            return seed
    return None
