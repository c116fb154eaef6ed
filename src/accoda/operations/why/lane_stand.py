"""How a job's lane and its queue stand by the rules for lanes: what is read for the gates `lane` and `total`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from accoda.lanes.rules import group_of, lowest_limit
from accoda.model import JobInfo, LaneInfo, Lanes, LanesInfo, QueueStats, State
from accoda.operations.lanes import SHOWN
from accoda.storage.protocol import Store

EXAMINED = 500
"""Jobs in a state that are read, in a queue, to find those of the lane."""
NAMED = 5
"""Jobs that are named."""
QUEUES = 20
"""Queues that share their limits with this one of which is read how they stand."""


class LaneStand(Struct, frozen=True, kw_only=True):
    """The rules of the queue. `limit`: that of the job's lane, in `limited_by` (the queue, and those that share its
    limits) the lowest. `counts`: the jobs of the job's lane in all these queues; None: it has no lane, or it is not
    among the first 100 by jobs that wait. `places`: some of the jobs that are in the places of its lane; `running`:
    some of those that run, of any lane, if the queue's `total` is reached. `shared_with`: the other queues that share
    its limits."""

    rules: Lanes = Lanes()
    limit: int | None = None
    limited_by: tuple[str, ...] = ()
    counts: LaneInfo | None = None
    places: tuple[JobInfo, ...] = ()
    running: tuple[JobInfo, ...] = ()
    shared_with: tuple[str, ...] = ()


async def read_lanes(store: Store, job: JobInfo, stats: QueueStats, head: JobInfo | None) -> LaneStand | None:
    """None: there are no rules, or none that matter. A queue that has ready jobs, no head and no pause has reached its
    `total`; so the rules are read only then, or for a job of a lane."""
    full = head is None and stats.ready > 0 and not stats.paused
    if job.lane is None and not full:
        return None
    own = await store.lanes(job.queue, limit=0 if job.lane is None else SHOWN)
    if own.rules is None:
        return None
    running = tuple(await store.browse(job.queue, "taken", limit=NAMED)) if full else ()
    if job.lane is None:
        return LaneStand(rules=own.rules, running=running)
    others = [] if own.rules.shared is None else [*await group_of(store, job.queue, own.rules.shared)][:QUEUES]
    infos = await asyncio.gather(*(store.lanes(queue, limit=SHOWN) for queue in others))
    group = {job.queue: own, **dict(zip(others, infos, strict=True))}
    limit, limited_by = _lowest(group, job.lane)
    return LaneStand(
        rules=own.rules,
        limit=limit,
        limited_by=limited_by,
        counts=_counted(group, job.lane),
        places=await _places(store, job, limit, tuple(group)),
        running=running,
        shared_with=tuple(others),
    )


def _lowest(group: dict[str, LanesInfo], lane: str) -> tuple[int | None, tuple[str, ...]]:
    """The lowest limit that the queues give a lane, and which of them do."""
    rules = {queue: info.rules for queue, info in group.items() if info.rules is not None}
    limit = lowest_limit(rules.values(), lane)
    return limit, tuple(queue for queue, each in rules.items() if limit is not None and each.limit_of(lane) == limit)


def _counted(group: dict[str, LanesInfo], lane: str) -> LaneInfo | None:
    """The jobs of the lane in all queues of its group; None: in one of them it may be among those not listed."""
    found: list[LaneInfo] = []
    for info in group.values():
        one = next((each for each in info.lanes if each.lane == lane), None)
        if one is None and info.count > len(info.lanes):
            return None
        found += [] if one is None else [one]
    return LaneInfo(lane, *(sum(getattr(each, state) for each in found) for state in ("ready", "held", "taken")))


async def _places(store: Store, job: JobInfo, limit: int | None, queues: Sequence[str]) -> tuple[JobInfo, ...]:
    """Who is in the places of a full lane: those that run first, each in the order of their ids."""
    if job.state != "held" or not limit:
        return ()
    found: list[JobInfo] = []
    states: tuple[State, ...] = ("taken", "ready")
    for state in states:
        if len(found) < min(limit, NAMED):
            pages = await asyncio.gather(*(store.browse(queue, state, limit=EXAMINED) for queue in queues))
            found += sorted((one for page in pages for one in page if one.lane == job.lane), key=lambda one: one.id)
    return tuple(found[:NAMED])
