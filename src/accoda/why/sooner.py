"""What would make a job start sooner: a line for each gate that is shut. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accoda.names import is_system
from accoda.priority import AGING_STEP, Priority
from accoda.why.fleet import fleet_of
from accoda.why.funds import shortage
from accoda.why.model import Gate
from accoda.why.snapshot import Snapshot
from accoda.why.words import clock, many, rough

A_MOMENT = 1e10
"""A rank beyond it is a moment in milliseconds, so the queue is an aging one."""


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
            return [f"see to its workers (accoda workers), or start another: {start}"]
        return [f"start a worker for the queue: {start}"] if gate.verdict == "shut" else []
    if fleet.capped:
        return [f"raise the setting max_processors of queue {queue}, now {fleet.most}"]
    return [_more(queue)]


def _line(s: Snapshot, gate: Gate) -> list[str]:
    if s.job.state != "ready" or not s.place.ahead:
        return []
    if s.known.demand:
        return ["ask for it with a sooner due time, or more often: that is what its rank follows"]
    raised = _raised(s)
    if raised:
        return [raised]
    return [_more(s.job.queue)]


def _more(queue: str) -> str:
    start = "accoda worker MODULE:APP" + ("" if is_system(queue) else f" --queues {queue}")
    return f"more processors: {start}, or a higher --concurrency"


def _raised(s: Snapshot) -> str | None:
    """The level that helps, and how many it passes: all of them if it then comes before the head."""
    job, head = s.job, s.head
    ranks = _better_ranks(s)
    passed = many(s.place.ahead if s.place.exact else rough(s.place.ahead), "job")
    for level, rank in ranks:
        if head is not None and (rank, job.id) < (head.rank, head.id):
            return f"raise its priority: accoda job {job.id} priority {level} (it would be next, before {passed})"
    if not ranks:
        return None
    return f"raise its priority: accoda job {job.id} priority {ranks[-1][0]} (it would pass up to {passed})"


def _better_ranks(s: Snapshot) -> list[tuple[str, float]]:
    """The levels above the job's own with the rank that each would give it, the nearest first."""
    job = s.job
    if job.rank < A_MOMENT:
        if job.rank not in (1.0, 2.0, 3.0):
            return []
        level, step = int(job.rank), 1.0
    else:
        starts = {0: job.start_time, 1: job.prev_start_time}
        since = max(job.created_at, starts.get(job.attempts) or 0)
        level, step = round((job.rank - since) / AGING_STEP), float(AGING_STEP)
    if not 0 < level < len(Priority):
        return []
    return [(Priority(better).name, job.rank - (level - better) * step) for better in range(level - 1, -1, -1)]


def _taken(s: Snapshot, gate: Gate) -> list[str]:
    until = clock(int(gate.facts["lease_until"]), s.now)
    return [f"nothing need be done: it comes back when its lease ends, at {until}"]


def _dead(s: Snapshot, gate: Gate) -> list[str]:
    if s.holder is not None and s.holder.id != s.job.id:
        return []  # the gate of the key has said it
    return [f"mend what it says, then run it again: accoda job {s.job.id} retry"]


_ADVICE: dict[str, Callable[[Snapshot, Gate], list[str]]] = {
    "delayed": _delayed,
    "paused": _paused,
    "key": _key,
    "budget": _budget,
    "workers": _workers,
    "line": _line,
    "taken": _taken,
    "dead": _dead,
}
