"""The workers as one queue sees them: which serve it, how many of its jobs they may run, and what they run.

Single jobs run in slots; a handler of whole batches has a processor for each batch. The two do not compete: a processor
runs a batch beside its slots. So a queue is compared with those of its own kind.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from accoda.model import QueueStats
from accoda.operations.why.snapshot import Snapshot
from accoda.runtime.heartbeat import Heartbeat, ProcessorState

A_MOMENT = 1.0
"""Seconds of work that make a queue a full competitor for slots; less is soon done."""
LEAST_SHARE = 0.2
"""Processors that a queue is assumed to have in a worker whose other queues all have more to do."""


class Busy(Struct, frozen=True):
    """What one processor runs of one queue: how many jobs, the oldest of them for how many seconds so far."""

    queue: str
    jobs: int
    seconds: float


class Room(Struct, frozen=True):
    """Of `places`, slots or processors, so many are `used`, and `own` of them by the queue, which may have `most`."""

    places: int = 0
    used: int = 0
    own: int = 0
    most: int = 0

    @property
    def free(self) -> int:
        """Places that could take a job of the queue now."""
        return max(0, min(self.places - self.used, self.most - self.own))

    @property
    def capped(self) -> bool:
        """Whether only the settings keep free places from the queue."""
        return self.most - self.own <= 0 < self.places - self.used


class Fleet(Struct, frozen=True):
    """The workers that serve the queue. `room`: in all those that can take jobs. `busy`: what they run of the same
    kind. `whole`: it has handlers of batches, so a place is a processor, not a slot. `given`: the processors that the
    manager gives it; None: there is no manager. `share`: the processors that it has on average."""

    alive: int = 0
    serving: tuple[Heartbeat, ...] = ()
    unable: tuple[Heartbeat, ...] = ()
    whole: bool = False
    room: Room = Room()
    busy: tuple[Busy, ...] = ()
    given: int | None = None
    share: float = 0.0

    @property
    def place(self) -> str:
        return "processor" if self.whole else "slot"

    @property
    def limit(self) -> str:
        """The setting that limits how many places the queue has."""
        return "max_processors" if self.whole else "concurrency"


def fleet_of(snapshot: Snapshot) -> Fleet:
    """What the heartbeats and the manager's assignment say about the job's queue and type."""
    queue = snapshot.job.queue
    all_serving = [beat for beat in snapshot.workers if beat.serves(queue, snapshot.type)]
    able = [beat for beat in all_serving if beat.ready and not beat.draining]
    rooms = [_room(beat, queue) for beat in able]
    given = snapshot.assignment
    rows = [] if given is None else [given.workers[beat.id] for beat in able if beat.id in given.workers]
    return Fleet(
        alive=len(snapshot.workers),
        serving=tuple(able),
        unable=tuple(beat for beat in all_serving if beat not in able),
        whole=bool(able) and all(queue in beat.batches for beat in able),
        room=Room(*(sum(getattr(room, name) for room in rooms) for name in Room.__struct_fields__)),
        busy=tuple(_busy(beat, state) for beat in able for state in _beside(beat, queue)),
        given=sum(row.get(queue, 0) for row in rows) if rows else None,
        share=sum(_share(beat, snapshot) for beat in able),
    )


def _room(beat: Heartbeat, queue: str) -> Room:
    states = _beside(beat, queue)
    processors = _processors(beat, queue)
    if queue in beat.batches:
        own = sum(state.queue == queue for state in states)
        return Room(beat.max_processors, len(states), own, processors)
    own = sum(state.jobs for state in states if state.queue == queue)
    # A processor has its part of the slots, rounded up.
    most = min(beat.slots, processors * -(-beat.slots // max(1, beat.max_processors)))
    return Room(beat.slots, beat.slots - beat.free, own, min(most, beat.concurrency.get(queue, most)))


def _beside(beat: Heartbeat, queue: str) -> list[ProcessorState]:
    """What the worker runs in places that the queue's jobs could have."""
    whole = queue in beat.batches
    return [state for state in beat.processors if state.queue is not None and (state.queue in beat.batches) == whole]


def _busy(beat: Heartbeat, state: ProcessorState) -> Busy:
    seconds = (beat.beat_at - (state.since or beat.beat_at)) / 1000
    return Busy(state.queue or "", state.jobs, max(0.0, seconds))


def _processors(beat: Heartbeat, queue: str) -> int:
    """By the settings. A cap below one still lets a queue have one processor, as in the worker's rotation."""
    return min(beat.max_processors, max(1, beat.caps.get(queue, beat.max_processors)))


def _share(beat: Heartbeat, snapshot: Snapshot) -> float:
    """How many processors of a worker the queue has on average, beside the others that have jobs.

    With an assignment it has what it was given, and its part of what is unused. Without one all queues with jobs take
    turns: each has processors by the time that its takes keep them busy. Others count as far as they have work.
    """
    queue = snapshot.job.queue
    rivals = [other for other in beat.queues if (other in beat.batches) == (queue in beat.batches)]
    loads = {other: 1.0 if other == queue else _load(beat, other, snapshot.queues.get(other)) for other in rivals}
    row = None if snapshot.assignment is None else snapshot.assignment.workers.get(beat.id)
    if row is not None:
        used = sum(row.get(other, 0) * load for other, load in loads.items())
        part = row.get(queue, 0) + max(0.0, beat.max_processors - used) / sum(loads.values())
    else:
        weights = {other: load * (_take_seconds(beat, other) or 1.0) for other, load in loads.items()}
        part = beat.max_processors * weights[queue] / sum(weights.values())
    return min(max(part, LEAST_SHARE), _processors(beat, queue))


def _load(beat: Heartbeat, queue: str, stats: QueueStats | None) -> float:
    """From 0, nothing to do, to 1, work for longer than a moment."""
    if stats is None or stats.paused or not stats.ready:
        return 0.0
    each = job_seconds((beat,), queue)
    return 1.0 if each is None else min(1.0, stats.ready * each / A_MOMENT)


def _take_seconds(beat: Heartbeat, queue: str) -> float | None:
    each = job_seconds((beat,), queue)
    return None if each is None else each * beat.batches.get(queue, 1)


def job_seconds(beats: Iterable[Heartbeat], queue: str) -> float | None:
    """Seconds of a processor for one job, as workers measured them lately: of a job in one of ten slots, a tenth of the
    time that it ran."""
    rates = [beat.rates[queue] for beat in beats if queue in beat.rates]
    jobs, busy = sum(rate.jobs for rate in rates), sum(rate.busy for rate in rates)
    return max(0.00005, busy / jobs) if jobs > 0 else None
