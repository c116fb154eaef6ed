"""How a job's lane and its queue stand by the rules for lanes: what is read for the gates `lane` and `total`."""

from __future__ import annotations

from msgspec import Struct

from accoda.model import JobInfo, LaneInfo, Lanes, QueueStats, State
from accoda.operations.lanes import SHOWN
from accoda.storage.protocol import Store

EXAMINED = 500
"""Jobs in a state that are read to find those of the lane."""
NAMED = 5
"""Jobs that are named."""


class LaneStand(Struct, frozen=True):
    """The rules of the queue. `counts`: the jobs of the job's lane; None: it has no lane, or it is not among the first
    100 by jobs that wait. `places`: some of the jobs that are in the places of its lane; `running`: some of those that
    run, of any lane, if the queue's `total` is reached."""

    rules: Lanes = Lanes()
    counts: LaneInfo | None = None
    places: tuple[JobInfo, ...] = ()
    running: tuple[JobInfo, ...] = ()


async def read_lanes(store: Store, job: JobInfo, stats: QueueStats, head: JobInfo | None) -> LaneStand | None:
    """None: there are no rules, or none that matter. A queue that has ready jobs, no head and no pause has reached its
    `total`; so the rules are read only then, or for a job of a lane."""
    full = head is None and stats.ready > 0 and not stats.paused
    if job.lane is None and not full:
        return None
    found = await store.lanes(job.queue, limit=SHOWN)
    if found.rules is None:
        return None
    counts = next((each for each in found.lanes if each.lane == job.lane), None)
    if counts is None and job.lane is not None and found.count <= len(found.lanes):
        counts = LaneInfo(job.lane, 0, 0, 0)
    places = await _places(store, job, found.rules.limit_of(job.lane)) if job.lane is not None else ()
    running = tuple(await store.browse(job.queue, "taken", limit=NAMED)) if full else ()
    return LaneStand(found.rules, counts, places, running)


async def _places(store: Store, job: JobInfo, limit: int | None) -> tuple[JobInfo, ...]:
    """Who is in the places of a full lane: those that run first, each in the order of their ids."""
    if job.state != "held" or not limit:
        return ()
    found: list[JobInfo] = []
    states: tuple[State, ...] = ("taken", "ready")
    for state in states:
        page = await store.browse(job.queue, state, limit=EXAMINED) if len(found) < min(limit, NAMED) else []
        found += sorted((each for each in page if each.lane == job.lane), key=lambda each: each.id)
    return tuple(found[:NAMED])
