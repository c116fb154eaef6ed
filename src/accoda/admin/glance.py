"""A queue's line at a glance: who is next, how many wait at each level, what failed lately. Bounded looks only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.admin.latest import latest
from accoda.admin.views import JobView
from accoda.model import check_queue
from accoda.shown.levels import LEVELS, level_of

if TYPE_CHECKING:
    from accoda.app import App

LOOKED_AT = 200
"""Jobs of which all this is made."""


class Line(Struct, rename="camel", frozen=True, kw_only=True):
    """Those who wait in a queue. `exact`: all of them were looked at; else only the `looked_at` oldest by id, and the
    one that is next. `levels` counts them by priority; those whose rank tells no level are under `other`."""

    next: list[JobView]
    levels: dict[str, int]
    looked_at: int
    exact: bool


async def line(app: App, queue: str, shown: int = 10) -> Line:
    """Who is next in a queue, and how many wait at each level."""
    check_queue(queue)
    store = await app.connections.get()
    found = await store.browse(queue, "ready", None, LOOKED_AT)
    head = (await store.peek(queue)).job
    if head is not None and len(found) == LOOKED_AT:
        found = [head, *(job for job in found if job.id != head.id)]
    levels = dict.fromkeys((*LEVELS, "other"), 0)
    for job in found:
        levels[level_of(app, job) or "other"] += 1
    first = sorted(found, key=lambda job: (job.rank, job.id))[:shown]
    return Line(
        next=[JobView.of(app, job) for job in first],
        levels=levels,
        looked_at=len(found),
        exact=len(found) < LOOKED_AT,
    )


async def failures(app: App, queue: str, most: int = 10) -> list[JobView]:
    """The newest dead letters of a queue, the latest first."""
    check_queue(queue)
    found = await latest(await app.connections.get(), queue, "dead", 2 * most)
    found.sort(key=lambda job: (job.ended_at or 0, job.id), reverse=True)
    return [JobView.of(app, job) for job in found[:most]]
