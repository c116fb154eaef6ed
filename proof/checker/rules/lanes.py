"""How many jobs of a lane, and of a queue, may run at once; and what may be held.

A limit is kept by the line: of a lane, ready and taken jobs together are as many as its limit at the most, unless more
of them ran when the limit was lowered. So it is a take that breaks it, never a change of the rules. A total likewise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

from accoda.model import Lanes
from proof.checker.call_log import Call
from proof.checker.ledger import Leased, Ledger, Life
from proof.checker.rules.base import Broken, Options
from proof.checker.rules.leases import held_until

_NO_RULES = Lanes()
Limit = Callable[[Lanes], int | None]


class _Run(NamedTuple):
    """A lease that was valid for certain from `since` to `until`."""

    since: float
    until: float
    id: int
    call: Call


def within_limits(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for queue in ledger.rules:
        lanes: dict[str, list[_Run]] = defaultdict(list)
        for life, run in _runs(queue, ledger, options):
            if life.lane is not None:
                lanes[life.lane].append(run)
        for lane, runs in lanes.items():
            yield from _crowded(runs, queue, ledger, _limit_of(lane), f"of lane {lane!r} in {queue}")


def within_total(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for queue in ledger.rules:
        runs = [run for _, run in _runs(queue, ledger, options)]
        yield from _crowded(runs, queue, ledger, lambda rules: rules.total, f"of {queue}")


def most_at_once(ledger: Ledger, options: Options) -> int:
    """The most jobs of one lane that were leased at once for certain, in any queue that had rules."""
    most = 0
    for queue in ledger.rules:
        lanes: dict[str, list[_Run]] = defaultdict(list)
        for life, run in _runs(queue, ledger, options):
            lanes[life.lane or ""].append(run)
        lanes.pop("", None)
        for runs in lanes.values():
            most = max(most, *(len(active) for active in _active(runs)))
    return most


def _limit_of(lane: str) -> Limit:
    return lambda rules: rules.limit_of(lane)


def _runs(queue: str, ledger: Ledger, options: Options) -> Iterator[tuple[Life, _Run]]:
    for life in ledger.lives.values():
        if life.queue == queue and life.id not in ledger.damaged:
            for lease in life.leases:
                until = _until(life, lease, ledger, options)
                if until >= lease.call.ended:
                    yield life, _Run(lease.call.ended, until, life.id, lease.call)


def _until(life: Life, lease: Leased, ledger: Ledger, options: Options) -> float:
    """The last moment at which it was valid for certain: not after the start of another take of the job."""
    later = min((each.call.started for each in life.leases if each.attempts > lease.attempts), default=inf)
    return min(held_until(life, lease, ledger, options), later)


def _crowded(runs: list[_Run], queue: str, ledger: Ledger, limit: Limit, what: str) -> Iterator[Broken]:
    """Looks at each moment at which a take has ended. All leases that are valid then for certain were valid together at
    the moment of the last of their takes, which is after the start of each and before this moment. It broke the limit
    if there are more of them than any rules allow that may have been in force then."""
    limits = _Limits(ledger.rules[queue], limit)
    for active in _active(runs):
        if len(active) <= limits.least:
            continue
        last = active[-1]
        most = limits.most(max(each.call.started for each in active), last.since)
        if len(active) > most:
            text = f"{len(active)} jobs {what} were leased at once, and {most:g} may be"
            yield Broken(last.id, text, tuple({each.call.number: each.call for each in active}.values())[-3:])


def _active(runs: list[_Run]) -> Iterator[list[_Run]]:
    """At each moment at which a take has ended, the leases that are valid for certain. The last is of that take."""
    active: list[_Run] = []
    for run in sorted(runs, key=lambda each: each.since):
        active = [each for each in active if each.until >= run.since]
        active.append(run)
        yield active


class _Limits:
    """What a limit may have been, by the calls that set it."""

    def __init__(self, calls: list[Call], limit: Limit) -> None:
        self._calls = [(call, _number(limit(call.start.rules or _NO_RULES))) for call in calls]
        self.least = min((number for _, number in self._calls), default=inf)

    def possible(self, since: float, until: float) -> Iterator[float]:
        """Those that may have been in force at a moment between these two. A call that was answered has replaced all
        that ended before it started; one that is unknown may do what it does at any time."""
        sure = [call.started for call, _ in self._calls if call.ok and call.ended <= since]
        replaced = max(sure, default=-inf)  # all that ended before this were replaced by then
        if not sure:
            yield inf  # without rules
        for call, number in self._calls:
            if call.started <= until and call.ended >= replaced:
                yield number

    def most(self, since: float, until: float) -> float:
        return max(self.possible(since, until))


def _number(limit: int | None) -> float:
    return inf if limit is None else limit


def nothing_held_for_ever(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """A lane that has a held job at the end is full: its ready and taken jobs are as many as its limit."""
    if ledger.final is None:
        return
    inside: Counter[tuple[str, str | None]] = Counter()
    held = []
    for seen in ledger.final.jobs.values():
        if seen.state == "held":
            held.append(seen)
        inside[seen.queue, seen.lane] += seen.state in ("ready", "taken")
    for seen in held:
        lane, count = seen.lane, inside[seen.queue, seen.lane]
        limits = _Limits(ledger.rules.get(seen.queue, []), _limit_of(lane or ""))
        least = min(limits.possible(inf, inf)) if lane is not None else inf
        if count < least:
            text = f"is held in the end, though {count} jobs of lane {lane!r} are ready or taken and {least:g} may be"
            yield Broken(seen.id, text)
