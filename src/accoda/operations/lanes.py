"""The lanes of a queue: its rules and their changes; how many jobs of each lane are in line, held and running."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from accoda.errors import InvalidInput, NotFound
from accoda.lanes import rules
from accoda.model import LANE, LaneInfo, Lanes, LanesInfo, QueueStats, check_queue
from accoda.operations.host import Host
from accoda.operations.views import same

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
    queue. `limit` is how many of them may be ready or running at once; null: as many as there are."""

    lane: str
    ready: int
    held: int
    taken: int
    share: float
    limit: int | None = None
    weight: float = 1.0

    @property
    def jobs(self) -> int:
        return self.ready + self.held + self.taken

    @classmethod
    def of(cls, info: LaneInfo, rules: Lanes, jobs: int) -> LaneView:
        share = (info.ready + info.held + info.taken) / max(1, jobs)
        return cls(
            **same(info, "lane ready held taken"),
            share=round(min(1.0, share), 4),  # the counters of the queue are read after those of its lanes
            limit=rules.limit_of(info.lane),
            weight=float(rules.weights.get(info.lane, 1)),
        )


class LanesView(Struct, rename="camel", frozen=True, kw_only=True):
    """The lanes of a queue: its `rules` (null: it has none), and the lanes with most jobs ready or held first. `count`
    is how many lanes have ready, held or running jobs (0 where none were asked for); `ready`, `held` and `taken` are
    those of the whole queue. `sharedWith` are the other queues that share its limits."""

    queue: str
    rules: RulesView | None = None
    shared_with: builtins.list[str] = []
    ready: int = 0
    held: int = 0
    taken: int = 0
    count: int = 0
    lanes: builtins.list[LaneView] = []

    @classmethod
    def of(cls, queue: str, found: LanesInfo, stats: QueueStats, shared_with: builtins.list[str]) -> LanesView:
        rules, jobs = found.rules or Lanes(), stats.ready + stats.held + stats.taken
        return cls(
            **same(stats, "ready held taken"),
            queue=queue,
            rules=None if found.rules is None else RulesView.of(found.rules),
            shared_with=shared_with,
            count=found.count,
            lanes=[LaneView.of(each, rules, jobs) for each in found.lanes],
        )


async def get(host: Host, queue: str, limit: int = SHOWN) -> LanesView:
    """The rules of a queue, and up to `limit` of its lanes. This counts all jobs that have a lane; 0 reads the rules
    alone."""
    check_queue(queue)
    if type(limit) is not int or not 0 <= limit <= MOST:
        raise InvalidInput("limit", f"must be an integer from 0 to {MOST}, not {limit!r:.60}")
    store = await host.connections.get()
    found = await store.lanes(queue, limit=limit)
    stats = (await store.stats()).queues
    if found.rules is None and queue not in stats and queue not in host.handlers:
        raise NotFound("queue", queue, "a queue is there from its first job on")
    shared = None if found.rules is None else found.rules.shared
    group = [] if shared is None else await rules.group_of(store, queue, shared)
    return LanesView.of(queue, found, stats.get(queue, QueueStats()), group)


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
