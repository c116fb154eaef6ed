"""When a job may be taken, and which is next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf

from msgspec import Struct

from proof.checker.call_log import Call
from proof.checker.ledger import Leased, Ledger, Life
from proof.checker.records import Failed
from proof.checker.rules.base import SECOND, Broken, Options
from proof.checker.rules.hidden import outlasted, overlap


def never_early(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        born = life.born
        if born is not None and born.asked.delay is None and born.asked.start_at is None and len(life.leases) < 2:
            continue
        for lease in life.leases:
            earliest, setter = _earliest(life, lease, ledger, options)
            if setter is not None and lease.call.ended < earliest:
                early = (earliest - lease.call.ended) / SECOND
                yield Broken(life.id, f"taken at least {early:.3f} s before its start time", (setter, lease.call))


def _earliest(life: Life, lease: Leased, ledger: Ledger, options: Options) -> tuple[float, Call | None]:
    """The earliest moment at which this lease can have been handed out, and the call that said so.

    A start time is counted from the moment of the call that set it, which is not before that call's start. A start
    given as a moment of the store's clock is counted from the job's creation, whose moment by that clock the job tells.
    """
    setters = _setters(life, lease)
    if not setters:
        return 0, None
    for placing in ledger.replacements(life):
        if placing.call.ended < lease.call.started and all(call.ended < placing.call.started for call, *_ in setters):
            setters = []  # certainly in between: what was said before counts no longer
        elif placing.call.started > lease.call.ended:
            continue
        setters.append((placing.call, placing.asked.delay, placing.asked.start_at))
    said = min(call.started for call, *_ in setters)
    for early in life.early_starts:  # from then on it may be taken; what was said after that counts again
        if said <= early.call.ended and early.call.started <= lease.call.ended:
            setters.append((early.call, None, None))
    bounds: list[tuple[float, Call]] = []
    for call, delay, moment in setters:
        since, seconds = call.started, delay or 0.0
        if moment is not None:
            if life.born is None:
                return 0, None
            since, seconds = life.born.call.started, (moment - lease.taken.created_at) / 1000
        bounds.append((since + options.surely(seconds), call))
    return min(bounds, key=lambda bound: bound[0])


def _setters(life: Life, lease: Leased) -> list[tuple[Call, float | None, int | None]]:
    """The call that said when this lease may begin: the enqueue, or the Retry before. A lease that ends says: now."""
    if lease.attempts == 0:
        born = life.born
        return [] if born is None else [(born.call, born.asked.delay, born.asked.start_at)]
    for each in life.outcomes:
        if each.sure and each.kind == "retry" and each.attempts == lease.attempts - 1:
            return [(each.call, each.told.delay, each.told.at)]
    return []


_ALL = (inf, inf)  # behind everything in a line


class _Ready(Struct, order=True, gc=False):
    """A job that was ready for certain from after `since` until before `until`."""

    rank: float
    id: int
    since: float
    until: float


def in_order(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """A take hands out the first of the line: lowest rank, then lowest id.

    Only jobs count of which it is certain that they stood in the line during the whole take: enqueued before it
    started, without a delay, never reranked, replaced or taken before (their first lease has attempts 0), and first
    taken by a call that started after it ended. Jobs that came back or were delayed do not: one call moves a bounded
    number of them. Nor do jobs of a lane where a queue has rules for lanes: they may be held, or come by turns.
    """
    if not options.ordered:
        return
    lines: dict[str, list[_Ready]] = defaultdict(list)
    for life in ledger.lives.values():
        ready = _ready(life, ledger)
        if ready is not None:
            lines[life.queue].append(ready)
    for queue, line in lines.items():
        line.sort(key=lambda each: each.since)
        yield from _sweep(queue, line, ledger, options)


def _ready(life: Life, ledger: Ledger) -> _Ready | None:
    born = life.born
    if born is None or born.asked.delay or born.asked.start_at is not None:
        return None
    replaced = born.asked.key is not None and ledger.replacements(life)
    if life.placings or life.reranks or life.removals or replaced or ledger.reranked(life):
        return None  # these may change its place, and while they do, another take may pass it over
    if life.id in ledger.damaged or (born.asked.lane is not None and life.queue in ledger.rules):
        return None
    if life.leases:
        first = life.leases[0]
        return _Ready(born.asked.rank, life.id, born.call.ended, first.call.started) if first.attempts == 0 else None
    if life.final is not None and life.final.state == "ready" and life.final.attempts == 0:
        return _Ready(born.asked.rank, life.id, born.call.ended, inf)
    return None


def _sweep(queue: str, line: list[_Ready], ledger: Ledger, options: Options) -> Iterator[Broken]:
    """Takes by their start, with a heap of the jobs that were ready before each.

    A job that stands before the end of a take was handed out by it or by one that went on at the same time, or it was
    passed over. It is set aside until its own take starts: later takes do not end before they start, so after that no
    take can have passed it over. There are never more aside than jobs in takes that go on at the same time, unless the
    order is broken.
    """
    heap: list[_Ready] = []
    aside: list[_Ready] = []
    first: dict[int, int] = {}  # when a take that passed over this job started
    lingering = _lingering(queue, ledger, options)
    enders: list[Call] | None = None
    patience = options.passing * SECOND
    next_in = 0
    for take in ledger.takes[queue]:
        while next_in < len(line) and line[next_in].since < take.started:
            heappush(heap, line[next_in])
            next_in += 1
        limit = _limit(queue, take, ledger, options)
        while heap and (heap[0].rank, heap[0].id) < limit:
            aside.append(heappop(heap))
        aside = [job for job in aside if job.until > take.started]
        passed = [job for job in aside if (job.rank, job.id) < limit and job.until > take.ended]
        if not passed or any(begin <= take.ended and take.started <= end for begin, end in lingering):
            continue
        if limit == _ALL:
            enders = _enders(queue, ledger) if enders is None else enders
            if any(overlap(take, call) for call in enders):
                limit = _last(take, queue in ledger.rules)
                passed = [job for job in passed if (job.rank, job.id) < limit]
        broken = [job for job in passed if take.ended >= first.setdefault(job.id, take.started) + patience]
        for job in broken:
            text = f"was ready with rank {job.rank:g}, but a take passed it over" + _instead(take, limit)
            yield Broken(job.id, text, (take,))
        if broken:
            aside = [job for job in aside if job not in broken]  # told once


def _limit(queue: str, take: Call, ledger: Ledger, options: Options) -> tuple[float, float]:
    """Everything in the line before this place must have been in the take."""
    if len(take.end.taken) < take.start.count and take.start.max_cost is None and not options.gives_fewer:
        pauses = ledger.pauses.get(queue)
        # Else it may have been paused, or have met so many unreadable records that it gave up; or it was sent again
        # when the lease of what it had been given was over (see hidden.py), and told of none of those. Or as many jobs
        # ran as the queue may have.
        full = any(
            call.start.rules is not None and call.start.rules.total is not None for call in ledger.rules.get(queue, ())
        )
        if (
            not ledger.damaged
            and not full
            and (not pauses or pauses[0].started > take.ended)
            and not outlasted(take, options)
        ):
            return _ALL  # it was given less than it asked for, so the line was empty after it
    return _last(take, queue in ledger.rules)


def _last(take: Call, ruled: bool) -> tuple[float, float]:
    """Where the last job stood that it gave; where there are rules, of those without a lane, which go by rank."""
    jobs = (job for job in take.end.taken if not ruled or job.lane is None)
    return max([(job.rank, float(job.id)) for job in jobs], default=(-inf, 0.0))


def _enders(queue: str, ledger: Ledger) -> list[Call]:
    """What may have ended leases: a take that is sent again meanwhile gives only what is left of its jobs."""
    calls = list(ledger.purges.get(queue, ()))
    calls += [placing.call for placing in ledger.maybe_replaced.get((queue, None), ())]
    for life in ledger.lives.values():
        if life.queue == queue:
            calls += [each.call for each in life.removals]
            calls += [each.call for each in life.placings if each.what == "replaced"]
    return calls


def _instead(take: Call, limit: tuple[float, float]) -> str:
    if limit[0] == inf:
        return f" and gave {len(take.end.taken)} of {take.start.count}"
    return f" for job {int(limit[1])} with rank {limit[0]:g}"


def _lingering(queue: str, ledger: Ledger, options: Options) -> list[tuple[float, float]]:
    """When takes that were given up may have held jobs, so that others rightly passed these over.

    A storage may also give back at once what such a take had leased, with the same attempts: the token was never told.
    """
    spans: list[tuple[float, float]] = []
    for call in ledger.unknown_takes.get(queue, ()):
        given_up = call.end.at if isinstance(call.end, Failed) else call.started
        spans.append((call.started, given_up + options.lingering * SECOND))
    return spans
