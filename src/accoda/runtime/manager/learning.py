"""From what the store counts and the workers measure to the situation that the rule decides on. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

from msgspec import Struct

from accoda.model import QueueStats, Stats
from accoda.runtime.heartbeat import Heartbeat
from accoda.runtime.manager.board import WorkerView
from accoda.runtime.manager.rule import Plan, QueueView, Situation

UNKNOWN_SERVICE = 1.0
"""Seconds that a job is assumed to need until one has run."""
MEMORY = 10.0
"""Seconds over which arrivals are averaged, by exponential decay."""
FORGET = 0.01
"""Jobs a second: fewer are none, so that a queue that gets no jobs leaves the plan."""


class Known(Struct, frozen=True):
    """What was learned of a queue so far. Arrivals are None until two looks could be compared."""

    service: float = UNKNOWN_SERVICE
    arrivals: float | None = None


class FleetView(Struct, frozen=True):
    """One look at everything: the counters, the workers, and when (milliseconds)."""

    stats: Stats
    workers: Sequence[Heartbeat]
    at: int


def learn(look: FleetView, last: FleetView | None, known: Mapping[str, Known]) -> dict[str, Known]:
    """What is known after this look, for every queue that some worker serves."""
    names = sorted({queue for worker in look.workers for queue in worker.queues})
    learned = {}
    for name in names:
        before = known.get(name, Known())
        learned[name] = Known(_service(name, look, before.service), _arrivals(name, look, last, before.arrivals))
    return learned


def remember(plans: Mapping[str, Plan]) -> dict[str, Known]:
    """What a new leader takes over from the last assignment of the old one."""
    return {name: Known(plan.service, plan.arrivals) for name, plan in plans.items()}


def situation(look: FleetView, known: Mapping[str, Known]) -> Situation:
    """What the rule decides on. A worker that is not ready, or drains, counts for nothing, and a paused queue has
    nothing ready."""
    able = [worker for worker in look.workers if worker.ready and not worker.draining]
    served = {queue for worker in able for queue in worker.queues}
    return Situation(
        queues={name: _view(name, look, known[name]) for name in sorted(served)},
        workers=tuple(WorkerView(w.id, w.max_processors, w.queues, w.caps) for w in able),
    )


def _view(name: str, look: FleetView, known: Known) -> QueueView:
    counts = look.stats.queues.get(name, QueueStats())
    return QueueView(
        ready=0 if counts.paused else counts.ready,
        taken=counts.taken,
        service=known.service,
        arrivals=0.0 if counts.paused else known.arrivals or 0.0,
    )


def _service(name: str, look: FleetView, before: float) -> float:
    """Seconds of a processor for one job: the workers' measure, with what was known before counting as one more job.

    Jobs that run longer than expected count with what they have taken so far, so that a queue of long jobs is known for
    one before the first of them is over. A job takes as much of a processor as its slot is of all its slots.
    """
    jobs, busy = 1.0, before
    for worker in look.workers:
        if (rate := worker.rates.get(name)) is not None and rate.jobs > 0:
            jobs += rate.jobs
            busy += max(0.0, rate.busy)
    expected = busy / jobs
    for worker in look.workers:
        for state in worker.processors:
            if state.queue == name and state.since is not None and state.jobs > 0:
                # By the worker's own clock on both sides: clocks of different machines are never compared.
                so_far = (worker.beat_at - state.since) / 1000 / max(1, state.slots)
                if so_far > expected:
                    jobs += state.jobs
                    busy += so_far * state.jobs
    return busy / jobs


def _arrivals(name: str, look: FleetView, last: FleetView | None, before: float | None) -> float | None:
    """Jobs that became ready in a second, averaged.

    Every run of a job begins by its becoming ready and ends in one of four counters; so what came in is what there is
    more of now, plus what ended since. Jobs that a person removed make it too small for one look, never negative.
    """
    now = look.stats.queues.get(name, QueueStats())
    if last is None or look.at <= last.at:
        return before
    then = last.stats.queues.get(name, QueueStats())
    elapsed = (look.at - last.at) / 1000
    came = (now.ready + now.taken) - (then.ready + then.taken) + _ended(now) - _ended(then)
    rate = max(0, came) / elapsed
    if before is not None:
        keep = exp(-elapsed / MEMORY)
        rate = keep * before + (1 - keep) * rate
    return rate if rate >= FORGET else 0.0


def _ended(counts: QueueStats) -> int:
    return counts.done + counts.retried + counts.buried + counts.expired
