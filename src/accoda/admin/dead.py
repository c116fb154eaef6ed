"""Dead letters: look at them, see what they have in common, bring them back, delete them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.admin import pages
from accoda.admin.causes import LATEST, Cause, DeadGroup, Groups, latest_groups, views_of
from accoda.admin.letters import DeadFilter, wanted
from accoda.admin.pages import Where
from accoda.admin.replays import (
    ReplayView,
    check_rate,
    list_replays,
    replay_state,
    start_replay,
    stop_replay,
)
from accoda.admin.store import now_of
from accoda.admin.views import JobView, Page
from accoda.errors import InvalidInput
from accoda.fingerprint import fingerprint as fingerprint_of
from accoda.model import JobInfo
from accoda.replays.letters import Wanted, dead_queues, gather
from accoda.replays.places import Place
from accoda.replays.reviving import Revived, revive_all

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.storage.protocol import Store

__all__ = [
    "LATEST",
    "DeadFilter",
    "DeadGroup",
    "Groups",
    "ReplayView",
    "count",
    "delete",
    "groups",
    "latest_groups",
    "list_replays",
    "page",
    "replay",
    "replay_state",
    "revive",
    "start_replay",
    "stop_replay",
]

GROUPED = 20_000
"""Dead letters that are looked at for their groups, or for a dry run."""
SAMPLES = 5
AT_ONCE = 500
MOST_IDS = 10_000

Tell = Callable[[int], None]


class ReplayReport(Struct, rename="camel", frozen=True, kw_only=True):
    """What a replay did, or would do. `held`: they stay dead, because another job holds their key; `gone`: they were
    revived or deleted by others meanwhile. `partial`: there are more than were counted."""

    matched: int
    revived: int = 0
    held: int = 0
    gone: int = 0
    dry_run: bool = False
    partial: bool = False
    samples: list[JobView] = []


async def page(
    app: App,
    *,
    queue: str | None = None,
    fingerprint: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
    system: bool = False,
) -> Page[JobView]:
    """Dead letters by queue and id."""
    which = wanted(DeadFilter(queue=queue, fingerprint=fingerprint), 0)
    fits = None if fingerprint is None else lambda job: fingerprint_of(job.reason or "") == which.fingerprint
    return await pages.page(app, Where(queue=queue, states=("dead",), system=system, fits=fits), limit, cursor)


async def groups(app: App, queue: str | None = None, system: bool = False) -> Groups:
    """What the dead letters have in common, of the first 20,000 of them."""
    store = await app.connections.get()
    which = wanted(DeadFilter(queue=queue, system=system), await now_of(store))
    found: dict[str, Cause] = {}
    place: Place | None = None
    looked_at = 0
    while looked_at < GROUPED:
        part = await gather(store, which, place, AT_ONCE, min(AT_ONCE, GROUPED - looked_at))
        for job in part.jobs:
            found.setdefault(fingerprint_of(job.reason or ""), Cause(job)).add(job)
        looked_at, place = looked_at + part.looked_at, part.next
        if place is None:
            break
    return Groups(groups=views_of(app, found), looked_at=looked_at, partial=place is not None)


async def replay(
    app: App, filter: DeadFilter, *, rate: float | None = None, dry_run: bool = False, progress: Tell | None = None
) -> ReplayReport:
    """Make the dead letters that fit ready again, at most `rate` a second; `progress` hears how many so far.

    Those that die while it goes on are not revived a second time. With `dry_run` nothing is changed: it counts up to
    20,000 of them, and shows a few.
    """
    check_rate(rate)
    store = await app.connections.get()
    which = wanted(filter, await now_of(store))
    if dry_run:
        return await _count(app, which)
    done, place, began = Revived(), None, time.monotonic()
    while True:
        part = await gather(store, which, place, _step(rate), 4 * AT_ONCE)
        done = done.plus(await revive_all(store, [job.id for job in part.jobs], which.until))
        if progress is not None:
            progress(done.matched)
        place = part.next
        if place is None:
            return _report(done)
        if rate is not None:
            await asyncio.sleep(max(0.0, began + done.matched / rate - time.monotonic()))


async def revive(app: App, ids: Sequence[int]) -> ReplayReport:
    """Make these dead letters ready again."""
    if len(ids) > MOST_IDS:
        raise InvalidInput("ids", f"must be at most {MOST_IDS:,} ids; use a filter for more")
    store = await app.connections.get()
    return _report(await revive_all(store, list(dict.fromkeys(ids)), await now_of(store) + 1))


async def delete(app: App, filter: DeadFilter, *, dry_run: bool = False, progress: Tell | None = None) -> int:
    """Delete the dead letters that fit, and count them; with `dry_run` only count them, up to 20,000."""
    store = await app.connections.get()
    which = wanted(filter, await now_of(store))
    if dry_run:
        return (await _count(app, which)).matched
    steps = _purge(store, which) if which.fingerprint is None and not which.since else _remove(store, which)
    gone = 0
    async for part in steps:
        gone += part
        if progress is not None:
            progress(gone)
    return gone


async def _purge(store: Store, which: Wanted) -> AsyncIterator[int]:
    """Delete whole queues of dead letters, in steps; each deletes what is dead at that moment, and nothing else."""
    for queue in await dead_queues(store, which):
        part = AT_ONCE
        while part == AT_ONCE:
            part = await store.purge(queue, "dead", before=which.until, limit=AT_ONCE)
            yield part


async def _remove(store: Store, which: Wanted) -> AsyncIterator[int]:
    """Delete those that fit, in steps. One that is revived in the moment between our look and its removal goes too: no
    verb of a storage deletes by id and state."""
    place = None
    while True:
        part = await gather(store, which, place, AT_ONCE, 4 * AT_ONCE)
        yield await store.remove([job.id for job in part.jobs]) if part.jobs else 0
        place = part.next
        if place is None:
            return


async def count(app: App, filter: DeadFilter, most: int = LATEST) -> ReplayReport:
    """How many dead letters fit, of the first `most`, and a few of them. Nothing is changed."""
    store = await app.connections.get()
    return await _count(app, wanted(filter, await now_of(store)), most)


async def _count(app: App, which: Wanted, most: int = GROUPED) -> ReplayReport:
    store = await app.connections.get()
    samples: list[JobInfo] = []
    matched, looked_at, place = 0, 0, None
    while looked_at < most:
        part = await gather(store, which, place, AT_ONCE, min(AT_ONCE, most - looked_at))
        samples += part.jobs[: SAMPLES - len(samples)]
        matched, looked_at, place = matched + len(part.jobs), looked_at + part.looked_at, part.next
        if place is None:
            break
    shown_jobs = [JobView.of(app, job) for job in samples]
    return ReplayReport(matched=matched, dry_run=True, partial=place is not None, samples=shown_jobs)


def _report(done: Revived) -> ReplayReport:
    return ReplayReport(matched=done.matched, revived=done.revived, held=done.held, gone=done.gone)


def _step(rate: float | None) -> int:
    """Jobs of one step: what a tenth of a second allows, so that a rate is kept evenly."""
    return AT_ONCE if rate is None else max(1, min(AT_ONCE, int(rate / 10)))
