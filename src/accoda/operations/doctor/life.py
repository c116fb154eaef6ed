"""What is in a store: queues that no worker serves, dead letters, late schedules, workers in trouble."""

from __future__ import annotations

from accoda.model import Head, QueueStats
from accoda.names import is_system
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.doctor.findings import Finding, note, ok, problem, warning
from accoda.operations.history.recorder import QUEUE as HISTORY
from accoda.operations.host import Host
from accoda.operations.moments import now_of
from accoda.operations.words import length, many
from accoda.runtime.heartbeat import Heartbeat, read_heartbeats
from accoda.storage.protocol import Store

HOUR = 3_600_000
LATE = 60_000
"""Milliseconds after which a tick is late."""
SILENT = 60_000
"""Milliseconds by which a heartbeat may be off: they come every few seconds, and expire soon."""
MANY_DEAD = 100_000
EXAMINED = 1000
NAMED = 5
"""How many queues are named one by one."""


async def look(store: Store, host: Host | None) -> list[Finding]:
    stats = (await store.stats()).queues
    beats = await read_heartbeats(store)
    now = await now_of(store)
    own = await bookkeeping(store, stats, () if host is None else host.demands)
    findings = [
        _summary({name: each for name, each in stats.items() if name not in own}, beats),
        *_unserved(stats, beats, host, await _left_alone(store, stats, now)),
        *_paused(stats),
        *_workers(beats, now),
    ]
    findings += await _dead(store, stats, now)
    findings += await _schedules(store, now)
    return findings


def _summary(stats: dict[str, QueueStats], beats: list[Heartbeat]) -> Finding:
    waiting = sum(each.ready + each.delayed for each in stats.values())
    found = f"{many(len(stats), 'queue')}, {many(waiting, 'job')} waiting, {many(len(beats), 'running worker')}"
    return ok("queues", found)


def _unserved(
    stats: dict[str, QueueStats], beats: list[Heartbeat], host: Host | None, left_alone: set[str]
) -> list[Finding]:
    """Ready jobs that no worker would take. Every worker and every HTTP service runs system jobs, and services have no
    heartbeat: such a job is `left_alone` if it waits for long."""
    served = {queue for beat in beats for queue in beat.queues}
    alone = [
        name
        for name, each in sorted(stats.items())
        if each.ready and not each.paused and (name in left_alone if is_system(name) else name not in served)
    ]
    findings = [_alone(name, stats[name], beats, host) for name in alone[:NAMED]]
    if len(alone) > NAMED:
        rest = sum(stats[name].ready for name in alone[NAMED:])
        found = f"{len(alone) - NAMED} more queues with {rest:,} ready jobs are served by no worker"
        findings.append(warning("queues", found, "see them with: accoda queues"))
    return findings


async def _left_alone(store: Store, stats: dict[str, QueueStats], now: int) -> set[str]:
    """System queues whose next job has been ready for long. The recorder of history always has one, and can wait.

    What counts is since when it is ready: the record of a flow may be days old when its moment comes, and an inbox that
    always gets more reports is kept.
    """
    heads = {
        name: (await store.look(Head(name))).job
        for name, each in stats.items()
        if is_system(name) and name != HISTORY and each.ready and each.oldest_age * 1000 > LATE
    }
    return {name for name, head in heads.items() if head is not None and now - head.start_time > LATE}


def _alone(name: str, stats: QueueStats, beats: list[Heartbeat], host: Host | None) -> Finding:
    waits = f", the oldest for {length(stats.oldest_age)}" if stats.oldest_age else ""
    found = f"{name!r} has {many(stats.ready, 'ready job')}{waits}, and no worker serves it"
    if is_system(name):
        return warning(
            "queue", found, "no worker or service runs it; start one: accoda worker MODULE:APP, or accoda serve"
        )
    if not beats:
        return warning("queue", found, "no worker is running; start one: accoda worker MODULE:APP")
    if host is not None and name not in host.handlers:
        advice = f"this app has no handler for it: add @app.handler({name!r}), or start the worker of the app that has"
        return warning("queue", found, advice)
    return warning("queue", found, f"start a worker whose app has @app.handler({name!r})")


def _paused(stats: dict[str, QueueStats]) -> list[Finding]:
    paused = [name for name, each in sorted(stats.items()) if each.paused and each.ready]
    return [
        note(
            "queue", f"{name!r} is paused, with {many(stats[name].ready, 'ready job')}", f"accoda queues {name} resume"
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
            # A worker dates its heartbeats by its own clock, and those of a worker that is gone expire.
            found = f"{where} is running, and its clock is {length(abs(now - beat.beat_at) / 1000)} off the store's"
            findings.append(warning("worker", found, "set the clock of that machine by NTP: timedatectl set-ntp true"))
        elif not beat.ready:
            findings.append(note("worker", f"{where} is starting or stopping"))
    return findings


async def _dead(store: Store, stats: dict[str, QueueStats], now: int) -> list[Finding]:
    findings = []
    names = [name for name, each in sorted(stats.items(), key=lambda pair: -pair[1].dead) if each.dead]
    for name in names[:NAMED]:
        count = stats[name].dead
        latest = await store.browse(name, "dead", limit=EXAMINED)
        recent = sum((job.ended_at or 0) >= now - HOUR for job in latest)
        at_least = "at least " if recent == EXAMINED else ""
        found = f"{name!r} has {count:,}" + (f", {at_least}{recent} of the last hour" if recent else "")
        advice = f"see why: accoda dead groups --queue {name}; then accoda dead replay"
        if count >= MANY_DEAD:
            advice += "; delete old ones: keep_dead_for=7 * 86400 of the handler"
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
            found = f"{view.name!r} was due {length((now - view.next_at) / 1000)} ago"
            advice = "no worker or service runs it; start one: accoda worker MODULE:APP, or accoda serve"
            findings.append(warning("schedule", found, advice))
    return findings
