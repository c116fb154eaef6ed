"""The gates before a job, each a function of the snapshot; None: this job has no such gate. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from accoda.flows.model import LOG
from accoda.model import AHEAD_AT_MOST, ENDED
from accoda.names import is_system
from accoda.operations.attempt_text import attempt_text, crash_text, quarantine_text
from accoda.operations.why.fleet import Busy, Fleet, fleet_of
from accoda.operations.why.lane_gates import lane, total
from accoda.operations.why.records import Fact, Gate
from accoda.operations.why.shortage import Shortage, head_of, shortage
from accoda.operations.why.snapshot import Snapshot
from accoda.operations.words import amount, clock, listed, many, moment, quoted, rough
from accoda.retry import QUARANTINED
from accoda.runtime.heartbeat import Heartbeat

MakeGate = Callable[[Snapshot], Gate | None]


def gates_of(snapshot: Snapshot) -> tuple[Gate, ...]:
    """Those of the job's state, in their order."""
    if snapshot.is_record:
        return (record(snapshot),)
    found = (make(snapshot) for make in _GATES[snapshot.job.state])
    return tuple(gate for gate in found if gate is not None)


def record(s: Snapshot) -> Gate:
    """The only one of a job that is never run."""
    at = s.job.start_time
    if s.job.queue == LOG:
        text = f"it is the record of flow {quoted(s.job.key or '')}, and is never run: accoda flow {s.job.key} shows it"
        return Gate("delayed", "note", text, {"at": at})
    owner = s.job.queue.rpartition(".")[0]
    return Gate("delayed", "note", f"it is a record that Accoda keeps for {owner}, and is never run", {"at": at})


def delayed(s: Snapshot) -> Gate:
    """Whether its start time has come."""
    at = s.job.start_time
    if s.job.state != "delayed":
        return Gate("delayed", "open", f"its start time has come: {moment(at, s.now)}", {"at": at})
    when = moment(at, s.now)
    given_back = s.job.attempts and not s.job.tries and s.reason
    if s.job.crashes >= QUARANTINED:
        text = quarantine_text(s.job, when)
    elif given_back:
        text = f"it was given back ({quoted(s.reason.removeprefix('given back: '))}), and is ready again at {when}"
        if not fleet_of(s).serving:  # without a worker for it the moment of its return starts nothing
            return Gate("delayed", "note", text, {"at": at})
    elif s.job.tries:
        text = f"{attempt_text(s.job.tries, s.declared.max_attempts)} is scheduled for {when}"
    else:
        text = f"it is scheduled for {when}"
    return Gate("delayed", "shut", text, {"until": at, "seconds": max(0.0, (at - s.now) / 1000)})


def paused(s: Snapshot) -> Gate:
    """Whether the queue hands out jobs."""
    stats, note = s.stats, s.pause
    if not stats.paused:
        return Gate("paused", "open", "the queue is not paused")
    facts: dict[str, Fact] = {"queue": s.job.queue}
    text = f"queue {s.job.queue} is paused"
    if note is not None:
        told: dict[str, Fact] = {"since": note.at, "who": note.who, "note": note.note}
        facts |= {name: value for name, value in told.items() if value}
        text += (f" by {quoted(note.who)}" if note.who else "") + f" since {clock(note.at, s.now)}"
    if stats.paused_until is None:
        text += " until it is resumed"
    else:
        facts["until"] = stats.paused_until
        text += f" until {moment(stats.paused_until, s.now)}"
    if note is not None and note.note:
        text += f": {quoted(note.note)}"
    return Gate("paused", "shut", text, facts)


def key(s: Snapshot) -> Gate | None:
    """Its key: held by this job, perhaps with waiters; or, if this job is dead, by another one now."""
    job, holder = s.job, s.holder
    if job.key is None:
        return None
    facts: dict[str, Fact] = {"key": job.key, "waiters": job.waiters}
    shown = f"key {quoted(job.key)!r}"
    if job.state in ENDED:
        if holder is None or holder.id == job.id:
            return Gate("key", "open", f"no other job holds its {shown}", facts)
        text = f"job {holder.id} ({holder.state}) holds its {shown}: this one cannot be revived until that one ends"
        return Gate("key", "shut", text, facts | {"holder": holder.id, "holder_state": holder.state})
    if not job.waiters:
        return Gate("key", "open", f"it holds its {shown} in the queue", facts)
    callers = many(job.waiters, "caller is", "callers are")
    return Gate("key", "note", f"{callers} waiting for this result ({shown})", facts)


def budget(s: Snapshot) -> Gate | None:
    """Whether the head of the line can be paid: until then nothing behind it passes."""
    if not s.budgets:
        return None
    short = shortage(s)
    if short is None:
        names = listed([each.budget.name for each in s.budgets])
        return Gate("budget", "open", f"{names} can pay for the next job", {"cost": s.job.cost})
    head = head_of(s)
    facts: dict[str, Fact] = {
        "budget": short.budget,
        "cost": short.needed,
        "left": round(short.left, 3),
        "short": ceil(round(short.short, 6)),
        "head": head.id,
    }
    if short.until is not None:
        facts["until"] = short.until
    who = "it costs" if head.id == s.job.id else f"job {head.id} at the head costs"
    return Gate("budget", "shut", _shortage_text(s, short, who), facts)


def _shortage_text(s: Snapshot, short: Shortage, who: str) -> str:
    if short.until is None:
        return f"{who} {amount(short.needed)}, which budget {short.budget} never has: it will be buried"
    until = moment(short.until, s.now)
    if short.closed:
        return f"budget {short.budget} is closed until {until}"
    missing = ceil(round(short.short, 6))
    return f"{who} {amount(short.needed)} and budget {short.budget} is short by {many(missing, 'token')} until {until}"


def workers(s: Snapshot) -> Gate:
    """Whether a worker can take it."""
    queue, fleet = s.job.queue, fleet_of(s)
    facts: dict[str, Fact] = {"workers": fleet.alive, "serving": len(fleet.serving)}
    if is_system(queue):
        verdict = "open" if fleet.alive else "note"
        return Gate("workers", verdict, "every worker and HTTP service runs jobs of this queue", facts)  # type: ignore[arg-type]
    if not fleet.serving:
        return _unserved(s, fleet, facts)
    room, place = fleet.room, fleet.place
    facts |= {f"{place}s": room.places, "busy": room.used, "own": room.own, "cap": room.most}
    if fleet.given is not None:
        facts["given"] = fleet.given
    if room.free:
        text = f"{many(room.free, f'{place} is', f'{place}s are')} free for {queue}"
        return Gate("workers", "open", text, facts | {"free": room.free})
    if room.capped:
        used = "it is" if room.most == 1 else "all are"
        text = f"{queue} may have {many(room.most, place)} by its setting {fleet.limit}, and {used} in use"
        return Gate("workers", "shut", text, facts)
    none_given = fleet.given == 0 and not room.own
    all_used = f"the only {place} is" if room.places == 1 else f"all {room.places:,} {place}s are"
    text = f"{all_used} in use: {_doings(fleet.busy)}"
    if none_given:
        text = f"the manager gives {queue} no processor, and {text}"
    # While jobs of this queue run, its line moves: then the line is the answer.
    moving = room.own and s.ahead
    return Gate("workers", "note" if moving else "shut", text, facts | {"with": _doings(fleet.busy)})


def _unserved(s: Snapshot, fleet: Fleet, facts: dict[str, Fact]) -> Gate:
    queue = s.job.queue
    known = any(queue in beat.queues for beat in s.workers)
    if s.stats.taken and not known:
        running = many(s.stats.taken, "job is", "jobs are")
        text = f"no worker handles {queue}, but {running} running: taken over the HTTP API, or by a program"
        return Gate("workers", "note", text, facts | {"taken": s.stats.taken})
    if s.type is not None:
        facts["type"] = s.type
    if not fleet.alive:
        return Gate("workers", "shut", "no worker is running", facts)
    if fleet.unable:
        names = [f"{quoted(beat.name)} ({quoted(beat.problem) or _state(beat)})" for beat in fleet.unable]
        serve = "the worker that handles" if len(names) == 1 else f"all {len(names)} workers that handle"
        return Gate("workers", "shut", f"{serve} {queue} cannot take jobs: {listed(names, 2)}", facts)
    if known:
        return _unknown_type(s, facts)
    others = sorted({other for beat in s.workers for other in beat.queues})
    they = "the running worker handles" if fleet.alive == 1 else f"the {fleet.alive:,} running workers handle"
    text = f"no running worker handles {queue}; {they} {listed(others)}"
    return Gate("workers", "shut", text, facts | {"served": listed(others, 20)})


def _unknown_type(s: Snapshot, facts: dict[str, Fact]) -> Gate:
    """Workers serve the queue, and none of them has a handler for this type."""
    queue = s.job.queue
    known = sorted({type for beat in s.workers for type in beat.types.get(queue, ()) if type is not None})
    mine = "jobs without a type" if s.type is None else f"type {quoted(s.type)}"
    text = f"no running worker handles {mine} of queue {queue}; its workers handle {listed(known)}"
    return Gate("workers", "shut", text, facts | {"served": listed(known, 20)})


def _state(beat: Heartbeat) -> str:
    return "draining" if beat.draining else "not ready"


def _doings(busy: tuple[Busy, ...]) -> str:
    """What runs, by queue, the longest first."""
    by_queue: dict[str, list[Busy]] = {}
    for each in sorted(busy, key=lambda each: -each.seconds):
        by_queue.setdefault(each.queue, []).append(each)
    parts = [
        f"{queue} ({many(sum(each.jobs for each in of), 'job')}, up to {rough(of[0].seconds)})"
        for queue, of in by_queue.items()
    ]
    return listed(parts, 3)


def line(s: Snapshot) -> Gate:
    """How many jobs are before it."""
    newer = s.look.newer
    facts: dict[str, Fact] = {"ahead": s.ahead, "newer": newer, "exact": int(not s.ahead_is_more)}
    facts["ready"] = s.stats.ready
    if s.job.state == "delayed":
        would = f"{many_ahead(s, 'job', 'jobs')} would be ahead" if s.ahead else "it would be next"
        return Gate("line", "note", f"if it were ready now, {would}", facts)
    if not s.ahead:
        return Gate("line", "open", "it is next in line", facts)
    text = f"{many_ahead(s, 'job is', 'jobs are')} ahead"
    if newer:
        text += f", {newer:,} of {'the first 10,000' if s.ahead_is_more else 'them'} enqueued later"
    return Gate("line", "shut", text, facts)


def many_ahead(s: Snapshot, one: str, more: str) -> str:
    """How many jobs are ahead, in words."""
    return f"more than {AHEAD_AT_MOST:,} {more}" if s.ahead_is_more else many(s.ahead, one, more)


def taken(s: Snapshot) -> Gate:
    """Which worker runs it."""
    job = s.job
    since, until = job.taken_at or job.start_time, job.lease_until or s.now
    worker = job.worker or ""
    facts: dict[str, Fact] = {"worker": worker, "since": since, "lease_until": until}
    beat = next((beat for beat in s.workers if worker and worker in (beat.id, beat.name)), None)
    on = f" on {quoted(worker)}" if worker else ""
    text = f"running{on} for {rough(max(0, s.now - since) / 1000)}, since {clock(since, s.now)}"
    if beat is not None:
        return Gate("taken", "note", f"{text}; its lease ends at {moment(until, s.now)}", facts | {"silent": 0})
    text += f"; that worker has no heartbeat: unless the lease is renewed, the job comes back at {moment(until, s.now)}"
    return Gate("taken", "shut", text, facts | {"silent": 1})


def tries(s: Snapshot) -> Gate | None:
    """Which attempt it is, if that is not the first; its last error; and how often it lost its worker.

    The error of a dead job is told by the gate `dead`.
    """
    job, most = s.job, s.declared.max_attempts
    if not job.tries and not job.crashes:
        return None
    facts: dict[str, Fact] = {"attempts": job.attempts, "tries": job.tries, "crashes": job.crashes}
    if most is not None:
        facts["max_attempts"] = most
    if job.crashes and job.worker:
        facts["worker"] = job.worker
    parts = [attempt_text(job.tries, most), crash_text(job, moment(job.start_time, s.now))]
    if s.reason:
        facts["error"] = s.reason
        parts.append(f"last error: {quoted(s.reason)}" if job.state != "dead" else "")
    return Gate("tries", "note", "; ".join(part for part in parts if part), facts)


def dead(s: Snapshot) -> Gate:
    """Why it was buried."""
    at = s.job.ended_at or s.now
    because = quoted(s.reason) or "no reason was given"
    text = f"dead since {moment(at, s.now)}: {because}"
    return Gate("dead", "shut", text, {"ended_at": at, "reason": s.reason})


def done(s: Snapshot) -> Gate:
    """When it was finished, and how long its result is kept."""
    at = s.job.ended_at or s.now
    until = at + round(s.job.keep_for * 1000)
    text = f"done at {moment(at, s.now)}; its result is kept until {moment(until, s.now)}"
    return Gate("done", "note", text, {"ended_at": at, "kept_until": until})


def cancelled(s: Snapshot) -> Gate:
    """When it was cancelled, and how long it is still shown."""
    at = s.job.ended_at or s.now
    until = at + round(s.job.keep_for * 1000)
    text = f"cancelled at {moment(at, s.now)}, so it will not run; it is kept until {moment(until, s.now)}"
    return Gate("cancelled", "note", text, {"ended_at": at, "kept_until": until})


_WAITING: tuple[MakeGate, ...] = (delayed, paused, lane, total, key, budget, workers, line, tries)
_GATES: dict[str, tuple[MakeGate, ...]] = {
    "ready": _WAITING,
    "delayed": _WAITING,
    "held": (delayed, paused, lane, total, key, workers, tries),
    "taken": (key, taken, tries),
    "dead": (key, tries, dead),
    "done": (tries, done),
    "cancelled": (tries, cancelled),
}
