"""One action on all jobs that fit a filter, as people start, watch and stop it. `accoda.bulk` says how it goes on."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, get_args

from msgspec import Struct

from accoda.admin.moments import shown
from accoda.admin.store import now_of
from accoda.bulk import BULKS, QUEUE, Action, Bulk, action_states, where_of
from accoda.errands import ErrandStatus
from accoda.errors import InvalidInput
from accoda.model import STATES, State, clean
from accoda.names import is_system
from accoda.search import JobFilter, Search, check_filter, kept_by_us, matcher
from accoda.shown.levels import LEVELS, Level

if TYPE_CHECKING:
    from accoda.app import App

__all__ = ["Action", "BulkView", "Count", "JobFilter", "check", "count", "get", "list", "start", "stop"]

COUNTED = 20_000
"""Jobs that are looked at to count those that fit."""
PARTS = 20
"""Parts in which that is done, of a hundred questions each: of thousands of queues not all are looked into."""


class BulkView(Struct, rename="camel", frozen=True, kw_only=True):
    """A bulk change. Of the jobs that were `looked_at` so many `matched` the filter; of these, some were `changed`,
    some `skipped`: as wanted already, gone, or of a demand; those that the store would not have `failed`."""

    id: str
    action: Action
    level: Level | None = None
    filter: JobFilter
    who: str = ""
    state: ErrandStatus
    looked_at: int = 0
    matched: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    problem: str = ""
    started_at: str
    ended_at: str | None = None

    @classmethod
    def of(cls, id: str, step: Bulk) -> BulkView:
        return cls(
            id=id,
            action=step.action,
            level=step.level,
            filter=step.filter,
            who=step.who,
            state=step.status,
            looked_at=step.looked_at,
            matched=step.matched,
            changed=step.did.changed,
            skipped=step.did.skipped,
            failed=step.did.failed,
            problem=step.did.problem,
            started_at=shown(step.started_at) or "",
            ended_at=shown(step.ended_at),
        )


class Count(Struct, frozen=True):
    """How many jobs fit. Not `exact`: there are at least so many; no more were looked at."""

    n: int
    exact: bool


async def start(app: App, action: Action, filter: JobFilter, level: Level | None = None, who: str = "") -> BulkView:
    """Begin to do one thing with all jobs that fit and are there now. It goes on wherever a worker or service runs.

    `retry` makes dead jobs ready again and starts delayed ones now; `cancel` takes back what waits or runs; `delete`
    deletes in whatever state; `priority` gives those that wait another `level`. Jobs in no state for it are skipped.
    """
    check(action, filter, level)
    store = await app.connections.get()
    now = await now_of(store, QUEUE)
    step = Bulk(action=action, level=level, filter=filter, who=clean(who)[:200], started_at=now)
    return BulkView.of(await BULKS.start(store, step), step)


def check(action: Action, filter: JobFilter, level: Level | None) -> None:
    """Refuse what cannot be meant, with the field that is wrong."""
    if action not in get_args(Action):
        raise InvalidInput("action", f"must be one of {', '.join(get_args(Action))}, not {action!r:.60}")
    if (level is not None) != (action == "priority") or (level is not None and level not in LEVELS):
        raise InvalidInput("level", f"must be one of {', '.join(LEVELS)} for priority, and is for nothing else")
    _check_mine(check_filter(filter))
    if not _states(filter, action):
        able = ", ".join(action_states(action))
        raise InvalidInput("state", f"{action} is for jobs that are {able}, not {filter.state}")


async def count(app: App, filter: JobFilter, action: Action | None = None, most: int = COUNTED) -> Count:
    """How many jobs fit (and are in a state for the action, if one is told), of the first `most` that are looked at.

    Without more than a queue and a state the counters tell, however many there are; kept results are looked at.
    """
    check_filter(filter)
    store = await app.connections.get()
    states, n = _states(filter, action), 0
    if matcher(app, filter) is None:
        counted = [state for state in states if state != "done"]
        states = ("done",) if "done" in states else ()
        stats = (await store.stats()).queues
        hidden = frozenset() if filter.queue or filter.system else await kept_by_us(store, stats)
        names = [filter.queue] if filter.queue else [name for name in stats if name not in hidden]
        n = sum(getattr(stats[name], state) for name in names if name in stats for state in counted)
    where = where_of(app, filter, states)
    looked_at, place = 0, None
    for _ in range(PARTS):
        part = await Search(store, where, most).run(place)
        n, looked_at, place = n + len(part.jobs), looked_at + part.looked_at, part.next
        if place is None:
            return Count(n, True)
        if looked_at >= most:
            break
    return Count(n, False)


async def get(app: App, id: str) -> BulkView:
    """How far one is, or how it ended; those that have ended are remembered for a week."""
    return BulkView.of(id, await BULKS.find(await app.connections.get(), id))


async def list(app: App) -> builtins.list[BulkView]:
    """Those that go on, and those that have ended in the last week; the latest first."""
    return [BulkView.of(id, step) for id, step in await BULKS.all(await app.connections.get())]


async def stop(app: App, id: str) -> BulkView:
    """End one before its end. What is done stays done; the step that runs now may still do its share."""
    return BulkView.of(id, await BULKS.stop(await app.connections.get(), id))


def _states(filter: JobFilter, action: Action | None) -> tuple[State, ...]:
    asked = STATES if filter.state is None else (filter.state,)
    return asked if action is None else tuple(state for state in asked if state in action_states(action))


def _check_mine(filter: JobFilter) -> None:
    """Refuse what nobody means: all jobs of all queues, and those that Accoda itself lives by."""
    if filter == JobFilter(system=filter.system):
        raise InvalidInput("filter", "is empty, which would mean every job; name a queue, a state or what jobs have")
    if filter.system or (filter.queue is not None and is_system(filter.queue)):
        field = "system" if filter.system else "queue"
        raise InvalidInput(field, "system queues are not changed in bulk; use schedules, webhooks and replays for them")
