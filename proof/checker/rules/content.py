"""That what comes out is what was put in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from proof.checker.call_log import Call
from proof.checker.ledger import Ledger, Life
from proof.checker.records import Seen, Taken
from proof.checker.rules.base import SECOND, Broken, Options

_DAY = 86_400 * SECOND


def content_kept(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        born = life.born
        if born is None or life.id in ledger.damaged:
            continue
        asked = born.asked
        seen: list[tuple[Taken | Seen, tuple[Call, ...]]] = [(each.taken, (each.call,)) for each in life.leases]
        if life.final is not None:
            seen.append((life.final, ()))
        for each, calls in seen:
            if each.lane != asked.lane:
                yield Broken(life.id, f"its lane is {each.lane!r}, not {asked.lane!r}", (born.call, *calls))
            if (
                each.size == asked.size
                and each.check == asked.check
                and (each.rank == asked.rank or _reranked(ledger, life))
            ):
                continue
            # A replacement brings new content; and while one is under way, either may be seen.
            if not any(_fits(each, placing.asked.size, placing.asked.check) for placing in ledger.replacements(life)):
                yield Broken(life.id, _difference(life, each), (born.call, *calls))


def _reranked(ledger: Ledger, life: Life) -> bool:
    return bool(life.reranks) or ledger.reranked(life) or any(each.told.rank is not None for each in life.outcomes)


def _fits(seen: Taken | Seen, size: int, check: int) -> bool:
    return seen.size == size and seen.check == check


def _difference(life: Life, seen: Taken | Seen) -> str:
    asked = life.born.asked if life.born is not None else None
    if asked is None or not _fits(seen, asked.size, asked.check):
        return f"its data ({seen.size} bytes) is not what was enqueued"
    return f"its rank is {seen.rank:g}, not {asked.rank:g} as it was enqueued"


def ids_grow(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """Within a queue, a job created by a call that ended before another started has the lower id.

    First in, first out among equal ranks rests on it.
    """
    if not options.ordered:
        return
    created: dict[str, dict[int, list[int]]] = defaultdict(dict)
    calls: dict[int, Call] = {}
    for life in ledger.lives.values():
        if life.born is not None:
            call = life.born.call
            calls[call.number] = call
            created[life.queue].setdefault(call.number, []).append(life.id)
    for spans in created.values():
        yield from _falling_ids({calls[number]: (min(ids), max(ids)) for number, ids in spans.items()})


def _falling_ids(spans: dict[Call, tuple[int, int]]) -> Iterator[Broken]:
    by_end = sorted(spans, key=lambda call: call.ended)
    highest: Call | None = None
    ended = 0
    for call in sorted(spans, key=lambda call: call.started):
        while by_end[ended].ended < call.started:
            if highest is None or spans[by_end[ended]][1] > spans[highest][1]:
                highest = by_end[ended]
            ended += 1
        if highest is not None and spans[call][0] <= spans[highest][1]:
            text = f"created after job {spans[highest][1]}, which has the higher id"
            yield Broken(spans[call][0], text, (highest, call))


def versions_unique(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """Each write of a document gets a version of its own: compare-and-set, and so every lock, rests on it.

    The versions of a document that is gone go on for a day.
    """
    seen: dict[tuple[str, int], Call] = {}
    for call in ledger.writes:
        token = (call.start.document, call.end.count)
        other = seen.get(token)
        if other is not None and call.started - other.started < _DAY // 2:
            text = f"document {token[0]!r}: two writes were told that they made version {token[1]}"
            yield Broken(None, text, (other, call))
        seen[token] = call
