"""What dead letters have in common: groups of those that failed of the same cause, as far as their reasons tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from accoda.admin.latest import latest
from accoda.admin.moments import shown
from accoda.admin.views import reason_of
from accoda.fingerprint import fingerprint as fingerprint_of
from accoda.model import JobInfo
from accoda.names import is_system

if TYPE_CHECKING:
    from accoda.app import App

LATEST = 2_000
"""Dead letters that are looked at for the groups of the newest: their fingerprints are half of a page's time."""
MOST_QUEUES = 100


class DeadGroup(Struct, rename="camel", frozen=True, kw_only=True):
    """Dead letters that failed of the same cause, as far as their reasons tell. `reason` is that of the last one."""

    fingerprint: str
    count: int
    reason: str
    queues: list[str]
    first_at: str
    last_at: str
    last_id: int


class Groups(Struct, rename="camel", frozen=True, kw_only=True):
    """The groups, the largest first. `partial`: only `looked_at` dead letters were looked at, the oldest by id (of
    `latest_groups`, the newest)."""

    groups: list[DeadGroup]
    looked_at: int
    partial: bool


class LatestGroups(Groups, rename="camel", frozen=True, kw_only=True):
    """The groups of the newest; `total` is how many dead letters there are."""

    total: int


class Cause:
    """A group that grows."""

    def __init__(self, job: JobInfo) -> None:
        self.count = 0
        self.last = job
        self.first_at = self.last_at = job.ended_at or 0
        self.queues: set[str] = set()

    def add(self, job: JobInfo) -> None:
        ended = job.ended_at or 0
        self.count += 1
        self.queues.add(job.queue)
        self.first_at = min(self.first_at, ended)
        if (ended, job.id) >= (self.last_at, self.last.id):
            self.last, self.last_at = job, ended

    def view(self, app: App, name: str) -> DeadGroup:
        return DeadGroup(
            fingerprint=name,
            count=self.count,
            reason=reason_of(app, self.last),
            queues=sorted(self.queues),
            first_at=shown(self.first_at) or "",
            last_at=shown(self.last_at) or "",
            last_id=self.last.id,
        )


def views_of(app: App, found: dict[str, Cause]) -> list[DeadGroup]:
    """The groups by their fingerprints, the largest first."""
    views = [group.view(app, name) for name, group in found.items()]
    return sorted(views, key=lambda group: (-group.count, group.fingerprint))


async def latest_groups(app: App, most: int = LATEST) -> LatestGroups:
    """What the newest dead letters have in common, about `most` of them at most; the work is bounded.

    As long as no queue has buried or lost a dead letter since, the last answer is given again.
    """
    store = await app.connections.get()
    stats = (await store.stats()).queues
    dead = {name: each for name, each in stats.items() if each.dead and not is_system(name)}
    # Whatever brings a dead letter changes `buried`, and whatever takes one away alone changes `dead`.
    mark = (most, *((name, each.dead, each.buried) for name, each in sorted(dead.items())))
    before = _grouped.get(app)
    if before is not None and before.mark == mark:
        return before.answer
    known = {} if before is None else before.prints
    prints: dict[tuple[int, int | None], str] = {}
    found: dict[str, Cause] = {}
    looked_at = 0
    fewest_first = sorted(dead, key=lambda name: (dead[name].dead, name))
    for at, queue in enumerate(fewest_first[:MOST_QUEUES]):
        share = max(1, (most - looked_at) // (min(len(fewest_first), MOST_QUEUES) - at))
        # One more than there are, so that a queue that fits in its share is read in one look.
        jobs = await latest(store, queue, "dead", min(share, dead[queue].dead + 1))
        looked_at += len(jobs)
        for job in jobs:
            death = (job.id, job.ended_at)
            name = prints[death] = known.get(death) or fingerprint_of(job.reason or "")
            found.setdefault(name, Cause(job)).add(job)
    total = sum(each.dead for each in dead.values())
    answer = LatestGroups(groups=views_of(app, found), looked_at=looked_at, partial=looked_at < total, total=total)
    _grouped[app] = _Grouped(mark, answer, prints)
    return answer


class _Grouped(Struct, frozen=True):
    """An answer of `latest_groups`, what it was true of, and the fingerprints, so that only new ones are computed."""

    mark: tuple[object, ...]
    answer: LatestGroups
    prints: dict[tuple[int, int | None], str]


_grouped: WeakKeyDictionary[Any, _Grouped] = WeakKeyDictionary()
"""The last answer for each app."""
