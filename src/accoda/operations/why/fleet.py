"""The workers as one queue sees them: which serve it, how many processors it may have, and what those run."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from accoda.model import QueueStats
from accoda.operations.why.snapshot import Snapshot
from accoda.runtime.heartbeat import Heartbeat

TOGETHER = 1.3
"""If jobs ran for so many times longer than their processors, they ran concurrently."""
A_MOMENT = 1.0
"""Seconds of work that make a queue a full competitor for processors; less is soon done."""
LEAST_SHARE = 0.2
"""Processors that a queue is assumed to have in a worker whose other queues all have more to do."""


class Busy(Struct, frozen=True):
    """One processor at work: on which queue, how many jobs at once, for how many seconds so far."""

    queue: str
    jobs: int
    seconds: float


class Fleet(Struct, frozen=True):
    """`processors` of the workers that serve the queue and can take jobs, of which the settings allow it `most` at
    once; the `busy` ones, and how many of them run this queue (`own`). `given`: those that the manager gives it; None:
    there is no manager."""

    alive: int = 0
    serving: tuple[Heartbeat, ...] = ()
    unable: tuple[Heartbeat, ...] = ()
    processors: int = 0
    most: int = 0
    busy: tuple[Busy, ...] = ()
    own: int = 0
    given: int | None = None
    share: float = 0.0

    @property
    def free(self) -> int:
        """Processors that could take a job of the queue now."""
        return max(0, min(self.processors - len(self.busy), self.most - self.own))

    @property
    def capped(self) -> bool:
        """Whether only the settings' cap keeps free processors from the queue."""
        return self.most - self.own <= 0 < self.processors - len(self.busy)


def fleet_of(snapshot: Snapshot) -> Fleet:
    """What the heartbeats and the manager's assignment say about the job's queue."""
    queue = snapshot.job.queue
    all_serving = [beat for beat in snapshot.workers if queue in beat.queues]
    able = [beat for beat in all_serving if beat.ready and not beat.draining]
    busy = tuple(
        Busy(state.queue, state.jobs, max(0.0, (beat.beat_at - (state.since or beat.beat_at)) / 1000))
        for beat in able
        for state in beat.processors
        if state.queue is not None
    )
    given = snapshot.assignment
    rows = [] if given is None else [given.workers[beat.id] for beat in able if beat.id in given.workers]
    return Fleet(
        alive=len(snapshot.workers),
        serving=tuple(able),
        unable=tuple(beat for beat in all_serving if beat not in able),
        processors=sum(beat.max_processors for beat in able),
        most=sum(_most(beat, queue) for beat in able),
        busy=busy,
        own=sum(each.queue == queue for each in busy),
        given=sum(row.get(queue, 0) for row in rows) if rows else None,
        share=sum(_share(beat, snapshot) for beat in able),
    )


def _most(beat: Heartbeat, queue: str) -> int:
    """By the settings. A cap below one still lets a queue have one processor, as in the worker's rotation."""
    return min(beat.max_processors, max(1, beat.caps.get(queue, beat.max_processors)))


def _share(beat: Heartbeat, snapshot: Snapshot) -> float:
    """How many processors of a worker the queue has on average, beside the others that have jobs.

    With an assignment it has what it was given, and its part of what is unused. Without one all queues with jobs take
    turns: each has processors by the time that its batches take. Others count as far as they have work.
    """
    queue = snapshot.job.queue
    loads = {other: 1.0 if other == queue else _load(beat, other, snapshot.queues.get(other)) for other in beat.queues}
    row = None if snapshot.assignment is None else snapshot.assignment.workers.get(beat.id)
    if row is not None:
        used = sum(row.get(other, 0) * load for other, load in loads.items())
        part = row.get(queue, 0) + max(0.0, beat.max_processors - used) / sum(loads.values())
    else:
        weights = {other: load * (batch_seconds((beat,), other) or 1.0) for other, load in loads.items()}
        part = beat.max_processors * weights[queue] / sum(weights.values())
    return min(max(part, LEAST_SHARE), _most(beat, queue))


def _load(beat: Heartbeat, queue: str, stats: QueueStats | None) -> float:
    """From 0, nothing to do, to 1, work for longer than a moment."""
    if stats is None or stats.paused or not stats.ready:
        return 0.0
    each = batch_seconds((beat,), queue, 1)
    return 1.0 if each is None else min(1.0, stats.ready * each / A_MOMENT)


def batch_seconds(beats: Iterable[Heartbeat], queue: str, batch: int | None = None) -> float | None:
    """Seconds of a processor for a batch of so many jobs (None: as many as now run), as workers measured them lately.

    Jobs that run concurrently take as long as the longest of them, however many there are; jobs that run one after the
    other take that long each. The sums tell which: concurrent jobs ran for longer than their processors did.
    """
    beats = list(beats)
    rates = [beat.rates[queue] for beat in beats if queue in beat.rates]
    jobs, busy = sum(rate.jobs for rate in rates), sum(rate.busy for rate in rates)
    if jobs <= 0:
        return None
    each = max(0.0005, busy / jobs)
    sums = [beat.sums[queue] for beat in beats if queue in beat.sums]
    count, ran = sum(one.jobs for one in sums), sum(one.ran for one in sums)
    if count and ran / count > TOGETHER * each:
        return ran / count
    seen = max((state.jobs for beat in beats for state in beat.processors if state.queue == queue), default=1)
    return each * max(1, batch or seen)
