"""Promises that are broken on purpose, to see that the simulation finds it: in the store, the processor, the keeper.

A simulation that never failed is not known to work. The store's breaks are the mutants of `accoda.testing.mutants`,
and a few that only show while workers die. Those that a workload of well-formed calls cannot show are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.model import Done, Job, Outcome, Refused
from accoda.runtime.processor import Processor
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.line import Record
from accoda.testing.mutants import MUTANTS
from accoda.testing.simulation.patches import SimKeeper


class DoubleLease(MemoryStorage):
    """A take that finds nothing is given a job that somebody else has, with the same lease."""

    _lent: Job | None = None

    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        jobs = await super().take(queue, count, **options)
        if jobs:
            self._lent = jobs[-1]
        elif (lent := self._lent) is not None and lent.queue == queue and self._current(lent.lease, self._now()):
            self._lent = None
            return [lent]
        return jobs


class ExpiryForgets(MemoryStorage):
    """Every so often a job whose lease ended is gone."""

    def _move_on(self, record: Record, now: int) -> None:
        if record.state == "taken" and record.id % 7 == 0:
            record.line.release_key(record)
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
            record.line.due.watch(record.due, (record.id,))
        else:
            super()._move_on(record, now)


class SleepyKeeper(SimKeeper):
    """Extends nothing."""

    async def run_once(self, now: float) -> None:
        pass


async def _settle_first(self: Processor, *args: Any) -> None:
    """Instead of `Processor._run`: says that the batch is done, and then runs it."""
    batch = args[1].batch
    await self.room.store.settle([Done(job.job.lease) for job in batch])
    await _run(self, *args)


_run = Processor._run


class Break(Struct, frozen=True):
    """What is broken, in words, and what stands in for the real part."""

    what: str
    core: type[MemoryStorage] = MemoryStorage
    keeper: type[SimKeeper] = SimKeeper
    processor: dict[str, Callable[..., Any]] = {}


_OWN = {
    "double-lease": Break("a take that finds nothing is given a job that another has", DoubleLease),
    "expiry-forgets": Break("a job whose lease ended is gone", ExpiryForgets),
    "settle-forgets": Break("settle says that all went well and applies half", SettleForgets),
    "lease-for-ever": Break("the lease of a dead worker never ends", LeaseForEver),
    "keeper-sleeps": Break("the keeper extends nothing", keeper=SleepyKeeper),
    "settles-early": Break("a processor settles before the handler ends", processor={"_run": _settle_first}),
}
_MUTANTS = (
    "attempts-stay", "late-done", "lease-lasts-too-long", "rank-ignored", "retry-to-the-back", "delay-ignored", "deaf",
    "follow-ups-dropped", "follow-ups-of-refused", "bury-drops-follow-ups", "follow-ups-of-a-refused-bury",
    "head-skipped", "waiter-forgotten", "counter-drift", "pause-ignored", "versions-begin-again", "crashes-uncounted",
    "retry-is-a-crash", "attach-is-a-start", "take-tells-no-crashes",
)  # fmt: skip
"""Those whose damage shows in a run. The others need bad input or a stopwatch, or spoil the store's own records."""
BREAKS: dict[str, Break] = {
    **_OWN,
    **{name: Break(MUTANTS[name].breaks, MUTANTS[name].memory or MemoryStorage) for name in _MUTANTS},
}


@contextmanager
def broken(name: str) -> Iterator[tuple[type[MemoryStorage], type[SimKeeper]]]:
    """While it lasts, the promise of that name is broken. An empty name breaks nothing."""
    if name and name not in BREAKS:
        raise InvalidInput("broken", f"there is no break {name!r}; there are {', '.join(BREAKS)}")
    chosen = BREAKS[name] if name else Break("nothing")
    before = {method: getattr(Processor, method) for method in chosen.processor}
    for method, stand_in in chosen.processor.items():
        setattr(Processor, method, stand_in)
    try:
        yield chosen.core, chosen.keeper
    finally:
        for method, real in before.items():
            setattr(Processor, method, real)
