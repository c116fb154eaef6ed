"""What goes on in a store: queues that nobody serves, dead letters, schedules that are late, workers in trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accoda.admin.store import now_of
from accoda.doctor.findings import Finding, note, ok, problem, warning
from accoda.model import QueueStats
from accoda.names import is_system
from accoda.replays.letters import Wanted, gather
from accoda.runtime.heartbeat import Heartbeat, read_heartbeats

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.storage.protocol import Store

HOUR = 3_600_000
LATE = 60_000
"""Milliseconds after which a tick is called late."""
SILENT = 60_000
"""Milliseconds by which a heartbeat may be off: they come every few seconds, and are forgotten soon."""
MANY_DEAD = 100_000
LOOKED_AT = 2000
NAMED = 5
"""So many queues are named one by one."""


async def look(store: Store, app: App | None) -> list[Finding]:
    stats = (await store.stats()).queues
    beats = await read_heartbeats(store)
    now = await now_of(store)
    findings = [_summary(stats, beats), *_unserved(stats, beats, app), *_paused(stats), *_workers(beats, now)]
    findings += await _dead(store, stats, now)
    findings += await _schedules(store, now)
    return findings


def _summary(stats: dict[str, QueueStats], beats: list[Heartbeat]) -> Finding:
    mine = [each for name, each in stats.items() if not is_system(name)]
    waiting = sum(each.ready + each.delayed for each in mine)
    found = f"{_many(len(mine), 'queue')}, {_many(waiting, 'job')} waiting, {_many(len(beats), 'worker')} alive"
    return ok("queues", found)


def _unserved(stats: dict[str, QueueStats], beats: list[Heartbeat], app: App | None) -> list[Finding]:
    """Ready jobs that no worker would take. Our own queues are every worker's."""
    served = {queue for beat in beats for queue in beat.queues}
    alone = [
        name
        for name, each in sorted(stats.items())
        if each.ready and not each.paused and (not beats if is_system(name) else name not in served)
    ]
    findings = [_alone(name, stats[name], beats, app) for name in alone[:NAMED]]
    if len(alone) > NAMED:
        rest = sum(stats[name].ready for name in alone[NAMED:])
        found = f"{len(alone) - NAMED} more queues with {rest:,} ready jobs are served by no worker"
        findings.append(warning("queues", found, "see them with: accoda queues"))
    return findings


def _alone(name: str, stats: QueueStats, beats: list[Heartbeat], app: App | None) -> Finding:
    waits = f", the oldest for {_length(stats.oldest_age)}" if stats.oldest_age else ""
    found = f"{name!r} has {_many(stats.ready, 'ready job')}{waits}, and no worker serves it"
    if is_system(name) or not beats:
        return warning("queue", found, "no worker is alive; start one: accoda worker MODULE:APP")
    if app is not None and name not in app.handlers:
        advice = f"this app has no handler of it: add @app.handler({name!r}), or start the worker of the app that has"
        return warning("queue", found, advice)
    return warning("queue", found, f"start a worker whose app has @app.handler({name!r})")


def _paused(stats: dict[str, QueueStats]) -> list[Finding]:
    paused = [name for name, each in sorted(stats.items()) if each.paused and each.ready]
    return [
        note(
            "queue", f"{name!r} is paused, with {_many(stats[name].ready, 'ready job')}", f"accoda queues {name} resume"
        )
        for name in paused[:NAMED]
    ]


def _workers(beats: list[Heartbeat], now: int) -> list[Finding]:
    findings = []
    for beat in beats:
        where = f"{beat.name} ({beat.host}, process {beat.pid})"
        if beat.problem:
            findings.append(problem("worker", f"{where}: {beat.problem}", "see its log; restart it if it stays so"))
        elif abs(now - beat.beat_at) > SILENT:
            # A worker dates its heartbeats by its own clock, and the store forgets those of a worker that is gone.
            found = f"{where} lives, and its clock is {_length(abs(now - beat.beat_at) / 1000)} off the store's"
            findings.append(warning("worker", found, "set the clock of that machine by NTP: timedatectl set-ntp true"))
        elif not beat.ready:
            findings.append(note("worker", f"{where} is starting or stopping"))
    return findings


async def _dead(store: Store, stats: dict[str, QueueStats], now: int) -> list[Finding]:
    findings = []
    names = [name for name, each in sorted(stats.items(), key=lambda pair: -pair[1].dead) if each.dead]
    for name in names[:NAMED]:
        count = stats[name].dead
        lately = await gather(store, Wanted(queue=name, since=now - HOUR, system=True), None, LOOKED_AT, LOOKED_AT)
        recent = len(lately.jobs)
        found = f"{name!r} has {count:,}" + (
            f", {'at least ' if lately.next else ''}{recent} of the last hour" if recent else ""
        )
        advice = f"see why: accoda dead groups --queue {name}; then accoda dead replay"
        if count >= MANY_DEAD:
            advice += "; let old ones go: keep_dead_for=7 * 86400 of the handler"
        findings.append((warning if recent or count >= MANY_DEAD else note)("dead letters", found, advice))
    return findings


async def _schedules(store: Store, now: int) -> list[Finding]:
    try:
        from accoda.schedules import list_all
    except ModuleNotFoundError:  # the extra is not installed, so this machine runs no schedules
        return []
    findings = []
    for view in await list_all(store):
        if view.problem:
            findings.append(problem("schedule", f"{view.name!r}: {view.problem}", "correct it, or delete it"))
        elif view.next_at is not None and now - view.next_at > LATE:
            found = f"{view.name!r} was due {_length((now - view.next_at) / 1000)} ago"
            advice = "no worker or service is there to do it; start one: accoda worker MODULE:APP, or accoda serve"
            findings.append(warning("schedule", found, advice))
    return findings


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _length(seconds: float) -> str:
    for size, word in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"
