"""The waiters of a job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from proof.checker.call_log import Call
from proof.checker.ledger import Ledger, Life, Placing, Sight
from proof.checker.records import Look
from proof.checker.rules.base import Broken, Options

KEPT = ("done", "cancelled")


def no_waiter_forgotten(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        joined = [each for each in life.placings if each.asked.waiter is not None and each.what != "kept"]
        if life.born is not None and life.born.asked.waiter is not None:
            joined.insert(0, life.born)
        if joined:
            yield from _too_few(life, joined)
            for sight in life.sights:
                yield from _left_out(life, joined, sight)
    yield from _never_named(ledger)


def _before(joined: list[Placing], call: Call) -> list[Placing]:
    """Those that had joined for certain when the call began."""
    return [each for each in joined if each.call.ended < call.started]


def _too_few(life: Life, joined: list[Placing]) -> Iterator[Broken]:
    """Every number of waiters that a client is told, or that an accepted outcome or change saw, counts all before."""
    counts = [(lease.call, lease.taken.waiters, "a take was told") for lease in life.leases]
    counts += [(each.call, each.waiters, f"an enqueue was told {each.what} and") for each in life.placings]
    counts += [(each.call, each.seen.waiters, "a look was told") for each in life.sights if each.seen.state not in KEPT]
    for outcome in life.outcomes:
        if outcome.sure and outcome.kind == "done" and outcome.told.waiters is not None:
            counts.append((outcome.call, outcome.told.waiters, "a Done was accepted that had seen"))
    for touch in (*life.removals, *life.revivals, *life.early_starts, *life.reranks):
        if touch.sure and touch.change.waiters is not None:
            counts.append((touch.call, touch.change.waiters, f"a {touch.change.kind} was accepted that had seen"))
    for call, count, told in counts:
        known = _before(joined, call)
        if len(known) > count:
            text = f"{len(known)} waiters had joined, but {told} {count}"
            yield Broken(life.id, text, (*(each.call for each in known[:5]), call))
    if life.final is not None and life.final.state not in KEPT and life.final.waiters < len(joined):
        yield Broken(life.id, f"{len(joined)} waiters joined, but it has {life.final.waiters} in the end")


def _left_out(life: Life, joined: list[Placing], sight: Sight) -> Iterator[Broken]:
    """A look that asks for the waiters after the first `after` names all of them. Each was told its number when it
    joined."""
    start = sight.call.start
    if not isinstance(start, Look) or start.after is None:
        return
    answer = sight.call.end.waiters
    if len(answer) != max(0, sight.seen.waiters - start.after):
        text = f"a look after {start.after} named {len(answer)} of {sight.seen.waiters} waiters"
        yield Broken(life.id, text, (sight.call,))
    wanted = [each for each in _before(joined, sight.call) if each.waiters > start.after]
    missing = Counter(each.asked.waiter for each in wanted) - Counter(answer)
    if missing:
        calls = [each.call for each in wanted if each.asked.waiter in missing]
        text = f"{sum(missing.values())} that had joined are not among those that a look named"
        yield Broken(life.id, text, (*calls[:5], sight.call))


def _never_named(ledger: Ledger) -> Iterator[Broken]:
    """A waiter that joins by a follow-up is told nothing, not even of which job. But where every job of a queue was
    finished by a client that had read all its waiters, it must have been among those of one."""
    if ledger.final is None:
        return
    joined: dict[str, list[tuple[Call, int]]] = defaultdict(list)
    for call, asked, sure in ledger.follow_ups:
        if sure and asked.waiter is not None and asked.on_duplicate in ("replace", "attach"):
            joined[asked.queue].append((call, asked.waiter))
    for queue, calls in joined.items():
        named = _named(queue, ledger)
        if named is None:
            continue
        for call, waiter in calls:
            if waiter not in named:
                text = f"{queue}: a waiter that joined by a follow-up was never named, and no job is left"
                yield Broken(None, text, (call,))


def _named(queue: str, ledger: Ledger) -> set[int] | None:
    """All that were named as waiters of a job of this queue; None where a job is left, or went without such a look."""
    if queue in ledger.purges:
        return None
    names: set[int] = set()
    for life in ledger.lives.values():
        if life.queue != queue or not life.there:
            continue
        ends = [each for each in life.outcomes if each.sure and each.kind == "done"]
        if life.final is not None or life.removals or not ends:
            return None
        seen = ends[0].told.waiters
        if seen is None or _read(life, names) < seen:
            return None
    return names


def _read(life: Life, names: set[int]) -> int:
    """How many of its waiters were read, from the first on, by all looks together; `names` gets them."""
    count = 0
    for sight in life.sights:
        start = sight.call.start
        if isinstance(start, Look) and start.after is not None:
            names.update(sight.call.end.waiters)
            if start.after <= count:
                count = max(count, start.after + len(sight.call.end.waiters))
    return count
