"""Queues: what is in them, and pausing, resuming and emptying them."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING

from accoda.admin.names import is_system
from accoda.admin.store import now_of
from accoda.admin.views import QueueView
from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.model import QueueStats, State, check_duration, check_moment, check_queue, check_state

if TYPE_CHECKING:
    from accoda.app import App

AT_ONCE = 1000
"""Jobs that one call of `purge` deletes, so that no store stands still for it."""

SCHEDULES = "accoda.schedules"


async def list(app: App, system: bool = False) -> builtins.list[QueueView]:
    """Every queue that ever had a job or a pause, or has a handler here, by name. `system`: our own as well."""
    stats = (await app.storage.stats()).queues
    names = sorted(stats.keys() | app.handlers.keys())
    return [QueueView.of(app, name, stats.get(name, _EMPTY)) for name in names if system or not is_system(name)]


async def get(app: App, name: str) -> QueueView:
    """One queue."""
    check_queue(name)
    stats = (await app.storage.stats()).queues.get(name)
    if stats is None and name not in app.handlers:
        raise NotFound("queue", name, "a queue is there from its first job on")
    return QueueView.of(app, name, stats or _EMPTY)


async def pause(app: App, name: str, until: float | None = None) -> QueueView:
    """Hand out nothing of a queue for `until` seconds (None: until `resume`). Running jobs go on."""
    check_queue(name)
    if until is not None:
        check_duration("until", until)
    store = await app.connections.get()
    await store.pause(name, None if until is None else await now_of(store, name) + round(until * 1000))
    return await get(app, name)


async def resume(app: App, name: str) -> QueueView:
    """End a pause."""
    check_queue(name)
    await app.storage.resume(name)
    return await get(app, name)


async def purge(
    app: App,
    name: str,
    state: State,
    before: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Delete the jobs of a queue in a state, and count them; those since before a moment (milliseconds), if it is told.

    In parts, so that others get through; `progress` hears the number so far after each. Those that come in later are
    spared: without a moment, it is the present one.
    """
    check_queue(name)
    check_state(state)
    if before is not None:
        check_moment("before", before)
    if name == SCHEDULES:
        raise Conflict(f"the jobs of {name} are the schedules themselves; delete them one by one as schedules")
    store = await app.connections.get()
    # The end of the present millisecond, so that what was stored in it goes too.
    limit = before if before is not None else await now_of(store, name) + 1
    gone = 0
    while True:
        part = await store.purge(name, state, before=limit, limit=AT_ONCE)
        gone += part
        if progress is not None:
            progress(gone)
        if part < AT_ONCE:
            return gone


def check_not_system(field: str, queue: str) -> None:
    """Refuse one of our own queues as a place for somebody's jobs."""
    if is_system(queue):
        raise InvalidInput(field, f"{queue!r} is a system queue; names that begin with 'accoda.' are Accoda's own")


_EMPTY = QueueStats()
