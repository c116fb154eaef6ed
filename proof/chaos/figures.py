"""Times read off a history: how soon the jobs of a dead worker ran again, how soon work went on after an outage."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from accoda.flows.model import LOG
from proof.checker import Call, CallLog

SECOND = 1e9
DEATHS = ("kill", "all killed")
_BACK = ("fail-over", "server up")
Token = tuple[int, int]
Span = tuple[int, int]


class Spread(msgspec.Struct, frozen=True):
    """Many numbers in four. All are None where there was none."""

    count: int = 0
    median: float | None = None
    p99: float | None = None
    worst: float | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = sorted(values)
        if not found:
            return cls()
        return cls(len(found), found[len(found) // 2], found[min(len(found) - 1, len(found) * 99 // 100)], found[-1])


def redeliveries(history: CallLog, lease: float) -> tuple[Spread, Spread]:
    """From a worker's death until each job in its hands was taken by another, as a share of the lease.

    The first is where the store could be reached all the time, the second where an outage or the stop of another worker
    lay in between.
    """
    again: dict[Token, int] = {}
    for call in _takes(history.calls):
        for job in call.end.taken:
            token = (job.id, job.attempts)
            again[token] = min(again.get(token, call.end.at), call.end.at)
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        calls[call.client].append(call)
    clear: list[float] = []
    clouded: list[float] = []
    spans = outages(history)
    for note in history.notes:
        if note.kind not in DEATHS:
            continue
        for id, attempts in in_hand(calls[note.client]):
            back = again.get((id, attempts + 1))
            if back is not None and back > note.at:
                share = (back - note.at) / SECOND / lease
                (clouded if overlaps(spans, (note.at, back)) else clear).append(share)
    return Spread.of(clear), Spread.of(clouded)


def in_hand(calls: Sequence[Call]) -> set[Token]:
    """The leases that a client held when its last call began. What it perhaps settled does not count."""
    held: set[Token] = set()
    for call in calls:
        if call.verb == "take" and call.ok and call.start.queue not in ("keyed", LOG):  # they may be replaced
            held.update((job.id, job.attempts) for job in call.end.taken)
        elif call.verb == "settle" and not call.refused:
            held.difference_update((told.id, told.attempts) for told in call.start.outcomes)
    return held


def outages(history: CallLog) -> list[Span]:
    """From each note of a beginning ("server down", "network cut", …) to that of its end."""
    begun: dict[str, int] = {}
    spans: list[Span] = []
    for note in history.notes:
        kind = note.kind.removesuffix(" over")
        if note.kind in ("server down", "server up"):
            kind = f"server {note.fields.get('port', '')}"
        if note.kind == "server up" or note.kind.endswith(" over"):
            began = begun.pop(kind, None)
            if began is not None:
                spans.append((began, note.at))
        elif note.kind == "server down" or "server" in note.fields:
            begun[kind] = note.at
    last = history.notes[-1].at if history.notes else 0
    return sorted([*spans, *((began, last) for began in begun.values())])


def overlaps(spans: Sequence[Span], span: Span) -> bool:
    return any(begin <= span[1] and span[0] <= end for begin, end in spans)


def recoveries(history: CallLog) -> Spread:
    """From each moment at which a server was back until jobs were taken, in seconds.

    Where a replica takes over, that is the moment which counts, not the return of the dead one.
    """
    ends = sorted(call.end.at for call in _takes(history.calls) if call.end.taken)
    at = {kind: [note.at for note in history.notes if note.kind == kind] for kind in (*_BACK, "server down")}
    found = []
    for back in at["fail-over"] or at["server up"]:
        place = bisect_left(ends, back)
        # If a server went down again before any take succeeded, that says nothing.
        if place < len(ends) and not any(back < down < ends[place] for down in at["server down"]):
            found.append((ends[place] - back) / SECOND)
    return Spread.of(found)


def ran_again(history: CallLog) -> int:
    """The jobs that ran more often than once for each retry that was asked for: a fault had them run again."""
    return sum(map(_ran_again, history.lives()))


def _ran_again(history: CallLog) -> int:
    runs: Counter[int] = Counter(note.fields["id"] for note in history.notes if note.kind == "start")
    for call in history.calls:
        if call.verb == "settle" and call.ok:
            denied = {(each.id, each.attempts) for each in call.end.denied}
            for told in call.start.outcomes:
                if told.kind == "retry" and (told.id, told.attempts) not in denied:
                    runs[told.id] -= 1
    return sum(count > 1 for count in runs.values())


def _takes(calls: Iterable[Call]) -> Iterable[Call]:
    return (call for call in calls if call.verb == "take" and call.ok)
