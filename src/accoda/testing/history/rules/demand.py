"""Who waits for a job, and what it costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from accoda.testing.history.history import Call
from accoda.testing.history.ledger import Extension, Ledger, Life, Outcome, Placing
from accoda.testing.history.records import AskWaiters
from accoda.testing.history.rules.base import SECOND, Broken, Options


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


def _before(joined: list[Placing], call: Call) -> list[Placing]:
    """Those who had joined for certain when the call began."""
    return [each for each in joined if each.call.ended < call.started]


def _too_few(life: Life, joined: list[Placing]) -> Iterator[Broken]:
    """Every number of waiters that a client is told, or that an accepted Done saw, counts all who joined before."""
    counts = [(lease.call, lease.taken.waiters, "a take was told") for lease in life.leases]
    counts += [(each.call, each.waiters, f"an enqueue was told {each.what} and") for each in life.placings]
    for outcome in life.outcomes:
        if outcome.sure and outcome.kind == "done" and outcome.told.waiters is not None:
            counts.append((outcome.call, outcome.told.waiters, "a Done was accepted that had seen"))
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


def _held_later(life: Life, attempts: int, call: Call) -> bool:
    """What was accepted after the call shows that the lease was valid during it."""
    uses: list[Outcome | Extension] = [*life.outcomes, *life.extensions]
    return any(use.sure and use.attempts == attempts and use.call.started > call.ended for use in uses)


def within_budget(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for takes in ledger.takes.values():
        for call in takes:
            most = call.start.max_cost
            if most is not None and sum(job.cost for job in call.end.taken) > most:
                cost = sum(job.cost for job in call.end.taken)
                yield Broken(None, f"a take with max_cost {most} was given jobs that cost {cost}", (call,))
    yield from _overspent(ledger)


def _overspent(ledger: Ledger) -> Iterator[Broken]:
    """Notes tell of budgets: `budget` (name, capacity, refill, per: `refill` tokens come back in `per` seconds, up to
    `capacity`; `left`, if given, is what there is now, else it is full) and `spend` (name, amount)."""
    budgets: dict[str, tuple[float, float, float, int]] = {}  # capacity, tokens a second, left, when
    for note in ledger.notes("budget", "spend"):
        name = str(note.fields.get("name"))
        if note.kind == "budget":
            capacity = float(note.fields["capacity"])
            rate = float(note.fields.get("refill", 0)) / float(note.fields.get("per", 1))
            budgets[name] = (capacity, rate, float(note.fields.get("left", capacity)), note.at)
        elif name in budgets:
            capacity, rate, left, since = budgets[name]
            left = min(capacity, left + rate * (note.at - since) / SECOND) - float(note.fields["amount"])
            if left < -1e-6:
                yield Broken(None, f"budget {name}: overspent by {-left:g} at {note.at / SECOND:.6f}, by {note.client}")
            budgets[name] = (capacity, rate, left, note.at)
