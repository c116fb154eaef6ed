"""What dead letters have in common: groups of those that failed for the same cause, as far as their reasons tell."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from accoda.envelope import unwrap
from accoda.fingerprint import fingerprint
from accoda.model import JobInfo, QueueStats, check_queue
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.host import Host
from accoda.operations.moments import rfc3339
from accoda.operations.redaction import reason_of

EXAMINED = 20_000
"""Dead letters that are read for the groups."""
MOST_QUEUES = 100
AT_ONCE = 1000


class DeadGroup(Struct, rename="camel", frozen=True, kw_only=True):
    """Dead letters that failed for the same cause, as far as their reasons tell. `reason` is that of the last one;
    `types` are those that they have."""

    fingerprint: str
    count: int
    reason: str
    queues: list[str]
    types: list[str] = []
    first_at: str
    last_at: str
    last_id: int


class Groups(Struct, rename="camel", frozen=True, kw_only=True):
    """The groups, the largest first. `partial`: only the latest `looked_at` dead letters of `total` were read."""

    groups: list[DeadGroup]
    looked_at: int
    partial: bool
    total: int


async def groups(
    host: Host,
    queue: str | None = None,
    system: bool = False,
    most: int = EXAMINED,
    *,
    among: Collection[str] | None = None,
) -> Groups:
    """What the latest dead letters have in common, of `most` at most, shared among the queues: all, or those `among`.

    As long as no queue has gained or lost a dead letter since, the last answer is given again.
    """
    if queue is not None:
        check_queue(queue)
    store = await host.connections.get()
    stats = (await store.stats()).queues
    own = frozenset() if system or queue is not None else await bookkeeping(store, stats, host.demands)
    names = [queue] if queue is not None else [name for name in sorted(stats) if name not in own]
    shown = stats.keys() if among is None else stats.keys() & among
    dead = {name: stats[name] for name in names if name in shown and stats[name].dead}
    # Whatever adds a dead letter changes `buried`, and whatever only removes one changes `dead`.
    mark = (most, *((name, each.dead, each.buried) for name, each in dead.items()))
    before = _last.get(host)
    if before is not None and before[0] == mark:
        return before[1]
    found: dict[str, list[JobInfo]] = {}
    for name, share in _shares(dead, most).items():
        after = None
        while share > 0 and (jobs := await store.browse(name, "dead", after=after, limit=min(share, AT_ONCE))):
            share, after = share - len(jobs), jobs[-1].cursor()
            for job in jobs:
                found.setdefault(fingerprint(job.reason or ""), []).append(job)
    views = [_group(host, cause, jobs) for cause, jobs in found.items()]
    total, examined = sum(each.dead for each in dead.values()), sum(map(len, found.values()))
    answer = Groups(
        groups=sorted(views, key=lambda group: (-group.count, group.fingerprint)),
        looked_at=examined,
        partial=examined < total,
        total=total,
    )
    _last[host] = mark, answer
    return answer


def _shares(dead: dict[str, QueueStats], most: int) -> dict[str, int]:
    """How many letters of each queue are read: queues with few leave their share to the others."""
    shares: dict[str, int] = {}
    fewest_first = sorted(dead, key=lambda name: (dead[name].dead, name))[:MOST_QUEUES]
    for at, name in enumerate(fewest_first):
        shares[name] = min(dead[name].dead, max(1, (most - sum(shares.values())) // (len(fewest_first) - at)))
    return shares


def _group(host: Host, cause: str, jobs: list[JobInfo]) -> DeadGroup:
    ends = [job.ended_at or 0 for job in jobs]
    last = max(jobs, key=lambda job: (job.ended_at or 0, job.id))
    return DeadGroup(
        fingerprint=cause,
        count=len(jobs),
        reason=reason_of(host, last),
        queues=sorted({job.queue for job in jobs}),
        types=sorted({type for job in jobs if (type := unwrap(job.data)[0].type)}),
        first_at=rfc3339(min(ends)),
        last_at=rfc3339(max(ends)),
        last_id=last.id,
    )


_last: WeakKeyDictionary[Any, tuple[tuple[object, ...], Groups]] = WeakKeyDictionary()
"""The last answer for each app, and the counters that it was made from."""
