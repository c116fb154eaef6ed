"""Queues: what is in them, and pausing, resuming and emptying them."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING

from accoda.admin.store import now_of
from accoda.admin.views import QueueView
from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.model import QueueStats, State, check_duration, check_moment, check_queue, check_state
from accoda.names import is_system
from accoda.search import kept_by_us
from accoda.why.pauses import LONGEST, PauseNote, forget_note, read_note, write_note

if TYPE_CHECKING:
    from accoda.app import App

AT_ONCE = 1000
"""Jobs that one call of `purge` deletes, so that no store stands still for it."""

SCHEDULES = "accoda.schedules"


async def list(app: App, system: bool = False) -> builtins.list[QueueView]:
    """Every queue that ever had a job or a pause, or has a handler here, by name. `system`: our own as well, and the
    books of demands (`deals.cache`, `deals.spent`)."""
    store = await app.connections.get()
    stats = (await store.stats()).queues
    names = stats.keys() | app.handlers.keys()
    hidden = frozenset() if system else await kept_by_us(store, names, app.demands)
    return [QueueView.of(app, name, stats.get(name, _EMPTY)) for name in sorted(names - hidden)]


async def get(app: App, name: str) -> QueueView:
    """One queue."""
    check_queue(name)
    stats = (await app.storage.stats()).queues.get(name)
    if stats is None and name not in app.handlers:
        raise NotFound("queue", name, "a queue is there from its first job on")
    return QueueView.of(app, name, stats or _EMPTY)


async def pause(
    app: App, name: str, until: float | None = None, who: str = "", note: str = "", *, moment: int | None = None
) -> QueueView:
    """Give out nothing of a queue for `until` seconds or until a `moment` (neither: until `resume`). What runs goes on.

    `who` does it, and a `note` of why, are there for whoever asks why nothing runs.
    """
    check_queue(name)
    if until is not None:
        check_duration("until", until)
    if len(note) > LONGEST:
        raise InvalidInput("note", f"must be at most {LONGEST} characters, not {len(note):,}")
    store = await app.connections.get()
    now = await now_of(store, name)
    end = moment if until is None else now + round(until * 1000)
    # The note first: one without its pause is seen by nobody, while a pause without its note is a riddle.
    await write_note(store, name, PauseNote(who, note, now, end))
    await store.pause(name, end)
    return await get(app, name)


async def resume(app: App, name: str) -> QueueView:
    """End a pause."""
    check_queue(name)
    store = await app.connections.get()
    await store.resume(name)
    await forget_note(store, name)
    return await get(app, name)


async def pause_note(app: App, name: str) -> PauseNote | None:
    """Who paused a queue, since when and why; None: it is not paused, or whoever did it left no note."""
    check_queue(name)
    store = await app.connections.get()
    stats = (await store.stats()).queues.get(name)
    if stats is None or not stats.paused:
        return None
    return await read_note(store, name, stats.paused_until)


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
