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
    queue: str


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
                    yield life, _Run(lease.call.ended, until, life.id, lease.call, queue)


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
        self._calls = calls
        self._limit = limit
        self.least = min((_number(limit(call.start.rules or _NO_RULES)) for call in calls), default=inf)

    def possible(self, since: float, until: float) -> Iterator[float]:
        return (_number(self._limit(rules)) for rules in possible_rules(self._calls, since, until))

    def most(self, since: float, until: float) -> float:
        return max(self.possible(since, until))


def possible_rules(calls: list[Call], since: float, until: float) -> Iterator[Lanes]:
    """Those that may have been in force at a moment between these two. A call that was answered has replaced all that
    ended before it started; one that is unknown may do what it does at any time."""
    sure = [call.started for call in calls if call.ok and call.ended <= since]
    replaced = max(sure, default=-inf)  # all that ended before this were replaced by then
    if not sure:
        yield _NO_RULES
    for call in calls:
        if call.started <= until and call.ended >= replaced:
            yield call.start.rules or _NO_RULES


def _number(limit: int | None) -> float:
    return inf if limit is None else limit


# ---- limits that queues share


def within_shared_limits(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """At the last take of leases that are valid together, only queues count that shared their limits for certain. More
    than the lowest limit that they can have had breaks it."""
    for shared, queues in _sharing(ledger).items():
        lanes: dict[str, list[_Run]] = defaultdict(list)
        for queue in queues:
            for life, run in _runs(queue, ledger, options):
                if life.lane is not None:
                    lanes[life.lane].append(run)
        for lane, runs in lanes.items():
            for active in _active(runs):
                yield from _crowd_of_a_group(active, shared, lane, ledger)


def _sharing(ledger: Ledger) -> dict[str, set[str]]:
    """The queues that ever shared limits, by the name under which they did."""
    found: dict[str, set[str]] = defaultdict(set)
    for queue, calls in ledger.rules.items():
        for call in calls:
            if call.start.rules is not None and call.start.rules.shared is not None:
                found[call.start.rules.shared].add(queue)
    return {shared: queues for shared, queues in found.items() if len(queues) > 1}


def _crowd_of_a_group(active: list[_Run], shared: str, lane: str, ledger: Ledger) -> Iterator[Broken]:
    last = active[-1]
    since = max(run.call.started for run in active)
    rules = {run.queue: list(possible_rules(ledger.rules[run.queue], since, last.since)) for run in active}
    sure = {queue for queue, each in rules.items() if all(one.shared == shared for one in each)}
    if last.queue not in sure:
        return
    counted = [run for run in active if run.queue in sure]
    most = min(max(_number(one.limit_of(lane)) for one in rules[queue]) for queue in sure)
    if len(counted) > most:
        where = ", ".join(sorted(sure))
        text = f"{len(counted)} jobs of lane {lane!r} in {where} were leased at once, and {most:g} may be"
        yield Broken(last.id, text, tuple({run.call.number: run.call for run in counted}.values())[-3:])


# ---- at the end


def nothing_held_for_ever(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """A lane that has a held job at the end is full: its ready and taken jobs are as many as its limit, in all queues
    that may share it together."""
    if ledger.final is None:
        return
    inside: Counter[tuple[str, str | None]] = Counter()
    held = []
    for seen in ledger.final.jobs.values():
        if seen.state == "held":
            held.append(seen)
        inside[seen.queue, seen.lane] += seen.state in ("ready", "taken")
    for seen in held:
        lane, queues = seen.lane, _group_at_the_end(seen.queue, ledger)
        count = sum(inside[queue, lane] for queue in queues)
        limits = [_Limits(ledger.rules.get(queue, []), _limit_of(lane or "")) for queue in queues]
        least = min(min(each.possible(inf, inf)) for each in limits) if lane is not None else inf
        if count < least:
            text = f"is held in the end, though {count} jobs of lane {lane!r} are ready or taken and {least:g} may be"
            yield Broken(seen.id, text)


def _group_at_the_end(queue: str, ledger: Ledger) -> set[str]:
    """The queue, and all that may share its limits."""

    def names(each: str) -> set[str | None]:
        return {rules.shared for rules in possible_rules(ledger.rules.get(each, []), inf, inf)}

    own = names(queue) - {None}
    return {queue, *(other for other in ledger.rules if own & names(other))}
