"""Queues: what is in them, who is next, what failed lately; pausing, resuming and emptying them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.model import QueueStats, State, check_duration, check_moment, check_queue, check_state, clean
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.health import Activity, read_activity
from accoda.operations.host import Host
from accoda.operations.jobs import OWN
from accoda.operations.levels import LEVELS, level_of
from accoda.operations.moments import now_of
from accoda.operations.views import JobView, QueueView
from accoda.payload import read_json
from accoda.storage.protocol import Storage

AT_ONCE = 1000
"""Jobs that one call of `purge` deletes, so that the store does not stall for it."""
SUMMARISED = 200
"""Jobs that a summary is made of."""
LONGEST_NOTE = 500
NOTES = "pause/"
"""A pause is kept by the storage; who paused and why is the document `pause/{queue}` beside it."""


class PauseNote(Struct, frozen=True):
    """`who` paused the queue `at` this moment, `until` that one (None: until it is resumed), and why."""

    who: str = ""
    note: str = ""
    at: int = 0
    until: int | None = None


class WaitingSummary(Struct, rename="camel", frozen=True, kw_only=True):
    """Jobs that wait in a queue. `exact`: all of them were read; else only the first `looked_at` of the line. `levels`
    counts them by priority; those whose rank tells no level are under `other`."""

    next: builtins.list[JobView]
    levels: dict[str, int]
    looked_at: int
    exact: bool


async def list(host: Host, system: bool = False) -> builtins.list[QueueView]:
    """Every queue that ever had a job or a pause, or has a handler here, by name. `system`: Accoda's own too."""
    store = await host.connections.get()
    stats = dict.fromkeys(host.handlers, _EMPTY) | (await store.stats()).queues
    return await views(host, stats, await read_activity(host), system)


async def views(
    host: Host, stats: Mapping[str, QueueStats], activity: Activity, system: bool = False
) -> builtins.list[QueueView]:
    """The queues of these counters, by name. `system`: Accoda's own too."""
    own = await bookkeeping(await host.connections.get(), stats, host.demands)
    return [
        QueueView.of(host, name, stats[name], activity, name in own)
        for name in sorted(stats)
        if system or name not in own
    ]


async def get(host: Host, name: str) -> QueueView:
    """One queue."""
    check_queue(name)
    stats = (await host.storage.stats()).queues
    if name not in stats and name not in host.handlers:
        raise NotFound("queue", name, "a queue is there from its first job on")
    own = await bookkeeping(await host.connections.get(), stats, host.demands)
    return QueueView.of(host, name, stats.get(name, _EMPTY), await read_activity(host), name in own)


async def waiting(host: Host, queue: str, shown: int = 10) -> WaitingSummary:
    """Which jobs are next in a queue, and how many wait at each level."""
    check_queue(queue)
    found = await (await host.connections.get()).browse(queue, "ready", limit=SUMMARISED)
    levels = dict.fromkeys((*LEVELS, "other"), 0)
    for job in found:
        levels[level_of(host, job) or "other"] += 1
    views = [JobView.of(host, job) for job in found[:shown]]
    return WaitingSummary(next=views, levels=levels, looked_at=len(found), exact=len(found) < SUMMARISED)


async def failures(host: Host, queue: str, most: int = 10) -> builtins.list[JobView]:
    """The latest dead letters of a queue."""
    check_queue(queue)
    found = await (await host.connections.get()).browse(queue, "dead", limit=most)
    return [JobView.of(host, job) for job in found]


async def pause(
    host: Host, name: str, seconds: float | None = None, who: str = "", note: str = "", *, until: int | None = None
) -> QueueView:
    """Hand out nothing of a queue for so many `seconds`, or `until` a moment (neither: until `resume`). Running
    jobs will finish. `who` does it, and a `note` of why, are shown to people who ask why nothing runs."""
    check_queue(name)
    if seconds is not None:
        check_duration("until", seconds)
    if len(note) > LONGEST_NOTE:
        raise InvalidInput("note", f"must be at most {LONGEST_NOTE} characters, not {len(note):,}")
    store = await host.connections.get()
    now = await now_of(store, name)
    end = until if seconds is None else now + round(seconds * 1000)
    # The note first: one without its pause is never shown, while a pause without its note is a riddle. It expires with
    # the pause.
    short = PauseNote(clean(who[:LONGEST_NOTE]), clean(note), now, end)
    ttl = None if end is None else max(1.0, (end - now) / 1000 + 1)
    await store.write(NOTES + name, msgspec.json.encode(short), ttl=ttl)
    await store.pause(name, end)
    return await get(host, name)


async def resume(host: Host, name: str) -> QueueView:
    """End a pause."""
    check_queue(name)
    store = await host.connections.get()
    await store.pause(name, 0)
    if await store.read(NOTES + name) is not None:
        await store.write(NOTES + name, b"", ttl=0)
    return await get(host, name)


async def pause_note(store: Storage, queue: str, stats: QueueStats) -> PauseNote | None:
    """Who paused a queue, since when and why; None: it is not paused, or the pause has no note.

    A program may pause anew without a note. The end of the pause tells the two apart, except for two without an end.
    """
    document = await store.read(NOTES + queue) if stats.paused else None
    note = None if document is None else read_json(document.value, PauseNote)
    return note if note is not None and note.until == stats.paused_until else None


async def note_of(host: Host, name: str) -> PauseNote | None:
    """`pause_note` of a queue by its name."""
    check_queue(name)
    store = await host.connections.get()
    return await pause_note(store, name, (await store.stats()).queues.get(name, _EMPTY))


async def purge(
    host: Host,
    name: str,
    state: State,
    before: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Delete the jobs of a queue in a state, and count them: all, or those since before a moment (milliseconds).

    In parts, so that other calls get through; `progress` is told the number so far after each. Jobs that come in later
    are spared: without a moment, it is the present one.
    """
    check_queue(name)
    check_state(state)
    if before is not None:
        check_moment("before", before)
    if name in OWN:
        kind = OWN[name][0]
        raise Conflict(f"the jobs of {name} are the {kind}s themselves; see to them one by one as {kind}s")
    store = await host.connections.get()
    # The end of the present millisecond, so that what was stored in it is deleted too.
    limit = before if before is not None else await now_of(store, name) + 1
    gone, part = 0, AT_ONCE
    while part == AT_ONCE:
        part = await store.purge(name, state, before=limit, limit=AT_ONCE)
        gone += part
        if progress is not None:
            progress(gone)
    return gone


_EMPTY = QueueStats()
