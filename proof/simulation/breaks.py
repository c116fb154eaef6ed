"""Promises that are broken on purpose, to see that the simulation finds it: in the store, the batch, the heartbeat.

A simulation that never failed is not known to work. The store's breaks are mutants of `proof.mutants`,
and a few that only show while workers die. Those that a workload of well-formed calls cannot show are left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.flows import coordinator, log
from accoda.flows.coordinator import Coordinator
from accoda.model import Done, Job, Outcome, Refused
from accoda.runtime.batch import BatchRun
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import Record
from proof.checker.flow_mutants import (
    RIGHT,
    FiresEarly,
    FlowMutant,
    ForgetsAResult,
    ForgetsWhatCameMeanwhile,
    LosesReportsOfDone,
    NeverFires,
    WritesTheRoundAlone,
)
from proof.mutants import MUTANTS
from proof.simulation.patches import SimHeartbeat


class DoubleLease(MemoryStorage):
    """A take that finds nothing is given a job that another holds, with the same lease."""

    _lent: Job | None = None

    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        jobs = await super().take(queue, count, **options)
        if jobs:
            self._lent = jobs[-1]
        elif (lent := self._lent) is not None and lent.queue == queue and self._leased(lent.lease, self._now()):
            self._lent = None
            return [lent]
        return jobs


class ExpiryForgets(MemoryStorage):
    """Every so often a job whose lease ended is gone."""

    def _move_on(self, record: Record, now: int) -> None:
        if record.state == "taken" and record.id % 7 == 0:
            record.queue.release_key(record)
            self._forget(record)
        else:
            super()._move_on(record, now)


class SettleForgets(MemoryStorage):
    """A settle of a large batch answers that all went well and applies the first half."""

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        few = outcomes if len(outcomes) < 10 else outcomes[: len(outcomes) // 2]
        return await super().settle(few)


class LeaseForEver(MemoryStorage):
    """The lease of a worker that died never ends."""

    def _move_on(self, record: Record, now: int) -> None:
        if record.state == "taken":
            record.due = now + 3_600_000
            record.queue.due.watch(record.due, record.id)
        else:
            super()._move_on(record, now)


class SleepingHeartbeat(SimHeartbeat):
    """Extends nothing."""

    async def run_once(self, now: float) -> None:
        pass


async def _settle_first(self: BatchRun) -> None:
    """Instead of `BatchRun.run`: says that the batch is done, and then runs it."""
    owner: Any = self.owner
    await owner.access.settle([Done(job.lease) for job in self.taken])
    await _run(self)


_run = BatchRun.run


def _of(broken: type[Coordinator]) -> FlowMutant:
    return FlowMutant("", coordinator=broken)


class Break(Struct, frozen=True):
    """What is broken, in words, and what stands in for the real part."""

    what: str
    core: type[MemoryStorage] = MemoryStorage
    flows: FlowMutant = RIGHT
    heartbeat: type[SimHeartbeat] = SimHeartbeat
    run: Callable[[BatchRun], Awaitable[None]] | None = None


_OWN = {
    "double-lease": Break("a take that finds nothing is given a job that another holds", DoubleLease),
    "expiry-forgets": Break("a job whose lease ended is gone", ExpiryForgets),
    "settle-forgets": Break("settle says that all went well and applies half", SettleForgets),
    "lease-for-ever": Break("the lease of a dead worker never ends", LeaseForEver),
    "heartbeat-sleeps": Break("the heartbeat extends nothing", heartbeat=SleepingHeartbeat),
    "settles-early": Break("a batch is settled before its handler ends", run=_settle_first),
}
_FLOWS = {
    "join-fires-early": Break("a join starts when one node before it is done", flows=FlowMutant("", graph=FiresEarly)),
    "join-never-fires": Break("a join of several nodes is forgotten", flows=FlowMutant("", graph=NeverFires)),
    "round-alone": Break("nodes are said to be started and are not", flows=_of(WritesTheRoundAlone)),
    "wrong-result": Break("a node lacks a result", flows=_of(ForgetsAResult)),
    "inbox-forgotten": Break("what comes while a flow is moved on is forgotten", flows=_of(ForgetsWhatCameMeanwhile)),
    "report-lost": Break("the end of a job is not reported to its flow", LosesReportsOfDone),
}
_MUTANTS = (
    "attempts-stay", "late-done", "lease-lasts-too-long", "rank-ignored", "retry-to-the-back", "delay-ignored", "deaf",
    "done-drops-follow-ups", "follow-ups-of-a-refused-done", "bury-drops-follow-ups", "follow-ups-of-a-refused-bury",
    "head-skipped", "waiter-forgotten", "counter-drift", "pause-ignored", "versions-begin-again", "crashes-uncounted",
    "retry-is-a-crash", "retry-always-counts", "attach-begins-again", "take-tells-no-failures",
    "limit-off-by-one", "single-limits-ignored", "held-handed-out", "due-jobs-pass-the-limit",
    "place-lost-at-a-lease-end", "place-lost-at-done", "rules-without-balance", "lane-lost-on-replace",
    "total-ignored", "total-off-by-one",
)  # fmt: skip
"""Those whose damage shows in a run. The others need bad input or a stopwatch, or spoil the store's own records."""
BREAKS: dict[str, Break] = {
    **_OWN,
    **_FLOWS,
    **{name: Break(MUTANTS[name].breaks, MUTANTS[name].memory or MemoryStorage) for name in _MUTANTS},
}


@contextmanager
def broken(name: str) -> Iterator[tuple[type[MemoryStorage], type[SimHeartbeat]]]:
    """While it lasts, the promise of that name is broken. An empty name breaks nothing."""
    if name and name not in BREAKS:
        raise InvalidInput("broken", f"there is no break {name!r}; there are {', '.join(BREAKS)}")
    chosen = BREAKS[name] if name else Break("nothing")
    with (
        patch.object(log, "FlowGraph", chosen.flows.graph),
        patch.object(coordinator, "Coordinator", chosen.flows.coordinator),
    ):
        yield from _with_run(chosen)


def _with_run(chosen: Break) -> Iterator[tuple[type[MemoryStorage], type[SimHeartbeat]]]:
    if chosen.run is not None:
        BatchRun.run = chosen.run  # type: ignore[method-assign, assignment]
    try:
        yield chosen.core, chosen.heartbeat
    finally:
        BatchRun.run = _run  # type: ignore[method-assign]
