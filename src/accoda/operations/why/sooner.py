"""What would make a job start sooner: advice for each gate that is shut. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from shlex import quote

from accoda.model import JobInfo
from accoda.names import is_system
from accoda.operations.levels import better_ranks
from accoda.operations.why.fleet import Fleet, fleet_of
from accoda.operations.why.gates import many_ahead
from accoda.operations.why.lane_gates import paused_holders
from accoda.operations.why.records import Gate
from accoda.operations.why.shortage import shortage
from accoda.operations.why.snapshot import Snapshot
from accoda.operations.words import clock


def sooner_of(snapshot: Snapshot, gates: Sequence[Gate]) -> tuple[str, ...]:
    """In the order of the gates; nothing for a job that runs or is done."""
    advice: list[str] = []
    for gate in gates:
        if gate.verdict == "shut" or gate.name in ("workers", "line"):
            advice += _ADVICE[gate.name](snapshot, gate)
    return tuple(dict.fromkeys(advice))


def _delayed(s: Snapshot, gate: Gate) -> list[str]:
    return [f"start it now: accoda job {s.job.id} retry"]


def _paused(s: Snapshot, gate: Gate) -> list[str]:
    return [f"resume the queue: accoda queues {s.job.queue} resume"]


def _lane(s: Snapshot, gate: Gate) -> list[str]:
    stand = s.lanes
    if stand is None or stand.limit is None:
        return []
    resume = [f"resume the queue that keeps places: accoda queues {queue} resume" for queue in paused_holders(s)]
    options = f"--lane {quote(str(gate.facts['lane']))} --limit {stand.limit + 1}"
    # Of the limits of queues that share them, the lowest holds: each that is so low must be raised.
    commands = " && ".join(f"accoda lanes {queue} {options}" for queue in stand.limited_by)
    return [*resume, f"give its lane {'one place more' if stand.limit else 'a place'}: {commands}"]


def _total(s: Snapshot, gate: Gate) -> list[str]:
    return [f"let the queue run more jobs at once: accoda lanes {s.job.queue} --total {int(gate.facts['total']) + 1}"]


def _key(s: Snapshot, gate: Gate) -> list[str]:
    holder = gate.facts["holder"]
    return [f"let job {holder} end, or cancel it (accoda job {holder} cancel); then accoda job {s.job.id} retry"]


def _budget(s: Snapshot, gate: Gate) -> list[str]:
    short = shortage(s)
    name = gate.facts["budget"]
    if short is None or short.until is None:
        return [f"give budget {name} a capacity of at least {gate.facts['cost']:g}, or the job a lower cost"]
    at = clock(short.until, s.now)
    if short.closed:
        return [f"wait until {at}, or open the budget again: app.books.reopen([{name!r}])"]
    return [f"wait for the budget until {at}, or give {name} more tokens: a larger capacity or refill"]


def _workers(s: Snapshot, gate: Gate) -> list[str]:
    queue, fleet = s.job.queue, fleet_of(s)
    start = f"accoda worker MODULE:APP --queues {queue}"
    if gate.verdict == "open":
        return []
    if not fleet.serving:
        if fleet.unable:
            return [f"repair its workers (accoda workers), or start another: {start}"]
        if gate.verdict != "shut":
            return []
        if s.type is not None and any(queue in beat.queues for beat in s.workers):
            return [f"start a worker whose app has @app.handler({queue!r}, type={s.type!r})"]
        return [f"start a worker for the queue: {start}"]
    if fleet.room.capped:
        return [f"raise the setting {fleet.limit} of queue {queue}, now {fleet.room.most}"]
    return [_more(queue, fleet)]


def _line(s: Snapshot, gate: Gate) -> list[str]:
    if s.job.state != "ready" or not s.ahead:
        return []
    if s.declared.demand:
        return ["request it with a sooner due time, or more often: its rank follows its waiters"]
    raised = _raised(s)
    if raised:
        return [raised]
    return [_more(s.job.queue, fleet_of(s))]


def _more(queue: str, fleet: Fleet) -> str:
    start = "accoda worker MODULE:APP" + ("" if is_system(queue) else f" --queues {queue}")
    return f"more {fleet.place}s: {start}, or a higher {'--processors' if fleet.whole else '--concurrency'}"


def _raised(s: Snapshot) -> str | None:
    """The level that helps, and how many jobs it passes: all of them if it then comes before the head."""
    job, head = s.job, s.head
    ranks = better_ranks(job)
    passed = many_ahead(s, "job", "jobs")
    for level, rank in ranks:
        if head is not None and _comes_first(job, rank, head):
            return f"raise its priority: accoda job {job.id} priority {level} (it would be next, before {passed})"
    if not ranks:
        return None
    return f"raise its priority: accoda job {job.id} priority {ranks[-1][0]} (it would pass up to {passed})"


def _comes_first(job: JobInfo, rank: float, head: JobInfo) -> bool:
    """Whether the job would be before the head with this rank. Where the head has a turn, a job of a lane comes in
    behind jobs of its level, so that it has to be of a better one."""
    if head.turn is not None and job.lane is not None:
        return floor(rank) < floor(head.turn)
    return (rank, job.id) < (head.rank if head.turn is None else head.turn, head.id)


def _taken(s: Snapshot, gate: Gate) -> list[str]:
    until = clock(int(gate.facts["lease_until"]), s.now)
    return [f"nothing to do: it comes back when its lease ends, at {until}"]


def _dead(s: Snapshot, gate: Gate) -> list[str]:
    if s.holder is not None and s.holder.id != s.job.id:
        return []  # the gate "key" says it
    return [f"fix the cause, then run it again: accoda job {s.job.id} retry"]


_ADVICE: dict[str, Callable[[Snapshot, Gate], list[str]]] = {
    "delayed": _delayed,
    "paused": _paused,
    "lane": _lane,
    "total": _total,
    "key": _key,
    "budget": _budget,
    "workers": _workers,
    "line": _line,
    "taken": _taken,
    "dead": _dead,
}
