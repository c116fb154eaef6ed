"""The lanes of a queue: its rules and their changes; how many jobs of each lane are in line, held and running."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from accoda.errors import InvalidInput, NotFound
from accoda.lanes import rules
from accoda.model import LANE, LaneInfo, Lanes, LanesInfo, QueueStats, check_queue
from accoda.operations.host import Host
from accoda.operations.views import same
from accoda.runtime.served_lanes import Served, read_served

SHOWN = 100
MOST = 1000
"""Lanes in one answer."""

LaneName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LANE,
        description=f"a lane: 1 to {LANE} printable characters",
        extra_json_schema={"format": "lane"},
    ),
]


class RulesView(Struct, rename="camel", frozen=True, kw_only=True):
    """The rules in force, those that the code declares and what people changed together: see `Lanes`."""

    limit: int | None = None
    limits: dict[str, int | None] = {}
    fair: bool = False
    weights: dict[str, float] = {}
    by_cost: bool = False
    total: int | None = None
    shared: str | None = None

    @classmethod
    def of(cls, rules: Lanes) -> RulesView:
        return cls(
            **same(rules, "limit fair by_cost total shared"),
            limits=dict(sorted(rules.limits.items())),
            weights=dict(sorted(rules.weights.items())),
        )


class LaneView(Struct, rename="camel", frozen=True, kw_only=True):
    """The jobs of a lane that are ready, held and running (`taken`), and which `share` they are of all such jobs of the
    queue. `limit` is how many of them may be ready or running at once; null: as many as there are. Where queues share
    their limits, it is the lowest, and holds for all of them together. `runs` is how many of its jobs workers ran in
    the last hour, and `runsShare` which share of the queue's runs that is."""

    lane: str
    ready: int
    held: int
    taken: int
    share: float
    limit: int | None = None
    weight: float = 1.0
    runs: int = 0
    runs_share: float = 0.0

    @property
    def jobs(self) -> int:
        return self.ready + self.held + self.taken

    @classmethod
    def of(cls, info: LaneInfo, group: Sequence[Lanes], jobs: int, served: Served) -> LaneView:
        """`group` are the rules of the queue, and then those of the queues that share its limits."""
        runs = served.lanes.get(info.lane, 0)
        return cls(
            **same(info, "lane ready held taken"),
            share=_share(info.ready + info.held + info.taken, jobs),
            limit=rules.lowest_limit(group, info.lane),
            weight=float(group[0].weights.get(info.lane, 1)),
            runs=runs,
            runs_share=_share(runs, served.jobs),
        )


def _share(part: int, whole: int) -> float:
    """At most 1: the two are not counted at the same moment."""
    return round(min(1.0, part / max(1, whole)), 4)


class LanesView(Struct, rename="camel", frozen=True, kw_only=True):
    """The lanes of a queue: its `rules` (null: it has none), and the lanes with most jobs ready or held first; then
    those that have none, but ran in the last hour, most runs first. `count` is how many lanes have ready, held or
    running jobs (0 where none were asked for); `ready`, `held`, `taken` and the `runs` of the last hour are those of
    the whole queue. `sharedWith` are the other queues that share its limits."""

    queue: str
    rules: RulesView | None = None
    shared_with: builtins.list[str] = []
    ready: int = 0
    held: int = 0
    taken: int = 0
    runs: int = 0
    count: int = 0
    lanes: builtins.list[LaneView] = []


async def get(host: Host, queue: str, limit: int = SHOWN) -> LanesView:
    """The rules of a queue, and up to `limit` of its lanes. This counts all jobs that have a lane; 0 reads the rules
    alone, and the counters of the queue."""
    check_queue(queue)
    if type(limit) is not int or not 0 <= limit <= MOST:
        raise InvalidInput("limit", f"must be an integer from 0 to {MOST}, not {limit!r:.60}")
    store = await host.connections.get()
    found = await store.lanes(queue, limit=limit)
    stats = (await store.stats()).queues
    if found.rules is None and queue not in stats and queue not in host.handlers:
        raise NotFound("queue", queue, "a queue is there from its first job on")
    in_force, counts = found.rules or Lanes(), stats.get(queue, QueueStats())
    others = {} if in_force.shared is None else await rules.group_of(store, queue, in_force.shared)
    group = (in_force, *others.values())
    served = await read_served(store, queue) if limit else Served()
    jobs = counts.ready + counts.held + counts.taken
    return LanesView(
        **same(counts, "ready held taken"),
        queue=queue,
        rules=None if found.rules is None else RulesView.of(found.rules),
        shared_with=[*others],
        runs=served.jobs,
        count=found.count,
        lanes=[LaneView.of(each, group, jobs, served) for each in (*found.lanes, *_idle(found, served, limit))],
    )


def _idle(found: LanesInfo, served: Served, limit: int) -> builtins.list[LaneInfo]:
    """The lanes that ran in the last hour and have no jobs, most runs first, as many as find room."""
    listed = {each.lane for each in found.lanes}
    idle = sorted((-runs, lane) for lane, runs in served.lanes.items() if lane not in listed)
    return [LaneInfo(lane, 0, 0, 0) for _, lane in idle[: max(0, limit - found.count)]]


async def change(host: Host, queue: str, changes: Mapping[str, object], limit: int = SHOWN) -> LanesView:
    """Change rules: `change(app, "reports", {"limit": 2, "limits": {"customer-7": 0}})`, see `accoda.lanes.rules`."""
    await rules.change(await host.connections.get(), queue, changes)
    return await get(host, queue, limit)


async def reset(host: Host, queue: str, lane: str | None = None, limit: int = SHOWN) -> LanesView:
    """Forget what was changed, for one lane or for all: the rules are those that the code declares."""
    await rules.reset(await host.connections.get(), queue, lane)
    return await get(host, queue, limit)


async def has_rules(host: Host, queue: str) -> bool:
    """Whether rules were declared or changed for a queue, at the cost of one read."""
    check_queue(queue)
    return await (await host.connections.get()).read(rules.PREFIX + queue) is not None
