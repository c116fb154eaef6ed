"""Who waits for a job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from accoda.testing.history.history import Call
from accoda.testing.history.ledger import Extension, Ledger, Life, Outcome, Placing, Sight
from accoda.testing.history.records import AskWaiters, Drop, Peek
from accoda.testing.history.rules.base import Broken, Options


def no_waiter_forgotten(ledger: Ledger, options: Options) -> Iterable[Broken]:
    looks: dict[int, list[Call]] = defaultdict(list)
    for call in ledger.waiter_looks:
        start: AskWaiters = call.start
        if start.held is not None:
            looks[start.held.id].append(call)
    for life in ledger.lives.values():
        joined = [each for each in life.placings if each.asked.waiter is not None and each.what != "kept"]
        if life.born is not None and life.born.asked.waiter is not None:
            joined.insert(0, life.born)
        if joined:
            yield from _too_few(life, joined)
            for call in looks[life.id]:
                yield from _overlooked(life, joined, call)
            for sight in life.sights:
                yield from _left_out(life, joined, sight)
    yield from _never_named(ledger)


def _before(joined: list[Placing], call: Call) -> list[Placing]:
    """Those who had joined for certain when the call began."""
    return [each for each in joined if each.call.ended < call.started]


def _too_few(life: Life, joined: list[Placing]) -> Iterator[Broken]:
    """Every number of waiters that a client is told, or that an accepted Done saw, counts all who joined before."""
    counts = [(lease.call, lease.taken.waiters, "a take was told") for lease in life.leases]
    counts += [(each.call, each.waiters, f"an enqueue was told {each.what} and") for each in life.placings]
    counts += [(each.call, each.seen.waiters, "a look was told") for each in life.sights if each.seen.state != "done"]
    for outcome in life.outcomes:
        if outcome.sure and outcome.kind == "done" and outcome.told.waiters is not None:
            counts.append((outcome.call, outcome.told.waiters, "a Done was accepted that had seen"))
    for removal in life.removals:
        if removal.sure and isinstance(removal.call.start, Drop):
            counts.append((removal.call, removal.call.start.waiters, "a drop was accepted that had seen"))
    for call, count, who in counts:
        known = _before(joined, call)
        if len(known) > count:
            text = f"{len(known)} waiters had joined, but {who} {count}"
            yield Broken(life.id, text, (*(each.call for each in known[:5]), call))
    if life.final is not None and life.final.state != "done" and life.final.waiters < len(joined):
        yield Broken(life.id, f"{len(joined)} waiters joined, but it has {life.final.waiters} in the end")


def _overlooked(life: Life, joined: list[Placing], call: Call) -> Iterator[Broken]:
    """An answer of `waiters` names all who joined before. It may be empty if the lease was lost by then."""
    start: AskWaiters = call.start
    answer = call.end.waiters
    if not answer and not (start.held is not None and _held_later(life, start.held.attempts, call)):
        return
    missing = Counter(each.asked.waiter for each in _before(joined, call)) - Counter(answer)
    if missing:
        who = [each.call for each in joined if each.asked.waiter in missing]
        yield Broken(life.id, f"{sum(missing.values())} who had joined are not among its waiters", (*who[:5], call))


def _left_out(life: Life, joined: list[Placing], sight: Sight) -> Iterator[Broken]:
    """A `peek` that asks for the waiters behind the first `after` names all of them. Who joined was told his place."""
    start = sight.call.start
    if not isinstance(start, Peek) or start.after is None:
        return
    answer = sight.call.end.waiters
    if len(answer) != max(0, sight.seen.waiters - start.after):
        text = f"a peek after {start.after} named {len(answer)} of {sight.seen.waiters} waiters"
        yield Broken(life.id, text, (sight.call,))
    wanted = [each for each in _before(joined, sight.call) if each.waiters > start.after]
    missing = Counter(each.asked.waiter for each in wanted) - Counter(answer)
    if missing:
        who = [each.call for each in wanted if each.asked.waiter in missing]
        text = f"{sum(missing.values())} who had joined are not among those that a peek named"
        yield Broken(life.id, text, (*who[:5], sight.call))


def _never_named(ledger: Ledger) -> Iterator[Broken]:
    """Who joins by a follow-up is told nothing, not even which job it is. But where every job of a queue was ended by
    one who had read its waiters, all of them, he must have been among those of one."""
    if ledger.final is None:
        return
    joined: dict[str, list[tuple[Call, int]]] = defaultdict(list)
    for call, asked, sure in ledger.follow_ups:
        if sure and asked.waiter is not None and asked.on_duplicate != "keep":
            joined[asked.queue].append((call, asked.waiter))
    for queue, calls in joined.items():
        named = _named(queue, ledger)
        if named is None:
            continue
        for call, waiter in calls:
            if waiter not in named:
                text = f"{queue}: one who joined by a follow-up was never named, and no job is left"
                yield Broken(None, text, (call,))


def _named(queue: str, ledger: Ledger) -> set[int] | None:
    """All who were among the waiters of a job of this queue; None where a job is left, or went without such a look."""
    read: dict[tuple[int, int], int] = {}
    names: set[int] = set()
    for call in ledger.waiter_looks:
        held = call.start.held
        if held is not None and held.queue == queue:
            read[held.id, held.attempts] = max(len(call.end.waiters), read.get((held.id, held.attempts), 0))
            names.update(call.end.waiters)
    if queue in ledger.purges:
        return None
    for life in ledger.lives.values():
        if life.queue != queue or not life.there:
            continue
        ends = [each for each in life.outcomes if each.sure and each.kind == "done"]
        if life.final is not None or life.removals or not ends:
            return None
        seen = ends[0].told.waiters
        if seen is None or read.get((life.id, ends[0].attempts), -1) < seen:
            return None
    return names


def _held_later(life: Life, attempts: int, call: Call) -> bool:
    """What was accepted after the call shows that the lease was valid during it."""
    uses: list[Outcome | Extension] = [*life.outcomes, *life.extensions]
    return any(use.sure and use.attempts == attempts and use.call.started > call.ended for use in uses)
