"""What a round of the recorder writes: from what it remembers and what it sees now. Pure.

A round ends every slot up to the present one. What happened since the round before is the difference of two counters;
where rounds were late, it is spread evenly over the slots in between. Where nobody recorded for longer than `LONGEST`
slots, nobody knows when it happened: those slots stay unknown. A queue of which nothing changed is not written; those
that changed and found no room in this round come first in the next, with their difference.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from accoda.history.memory import Known, Memory, Sums
from accoda.history.points import FINE, SHAPES, STEP, Span
from accoda.history.ring import BUDGET, QUEUE, Layout, Values, spread
from accoda.model import QueueStats
from accoda.names import is_system

LONGEST = 20
"""Slots over which a difference is spread at most: five minutes."""
BACK = 2
"""Slots by which the clock may go back without beginning anew."""
AT_ONCE = 200
"""Queues that one round writes at most."""
REFRESH = 86_400_000 // STEP
"""Slots after which a queue is written although nothing changed, so that its ring is not forgotten."""
TOTAL = "*"
"""All queues but our own: no queue has this name."""
COARSE: tuple[Span, ...] = tuple(span for span in SHAPES if span != FINE)


class WorkerSums(Struct, frozen=True):
    """What a worker has measured since it began."""

    started_at: int
    queues: Mapping[str, Sums]


class Look(Struct, frozen=True):
    """The store at one moment, by its clock. Budgets: left, reserved, used and refused today."""

    at: int
    queues: Mapping[str, QueueStats]
    workers: Mapping[str, WorkerSums] = {}
    budgets: Mapping[str, tuple[float, float, float, float]] = {}


class Page(Struct, frozen=True):
    """What is to be written of one queue or budget: fine slots, and coarse slots that are made of fine ones."""

    name: str
    layout: Layout
    slots: list[tuple[int, Values]]
    rolls: dict[Span, range]


class Round(Struct, frozen=True):
    """What to write, and what to remember then."""

    memory: Memory
    pages: list[Page]


def plan(memory: Memory | None, look: Look) -> Round:
    """One round. Nothing to write where the slot has not ended yet."""
    slot = look.at // STEP - 1
    if memory is None or slot < memory.slot - BACK:
        return _begin(look, slot, memory)
    if slot <= memory.slot:
        return Round(memory, [])
    new_sums = _measured(memory, look)
    total = _totalled(look, memory.total or Known(slot, (0.0,) * 4, (0.0,) * 5), new_sums)
    pages = [_written(total, TOTAL, slot, *_whole(look))]
    queues = _seen(memory, look, new_sums)
    due = [name for name in queues if _is_due(queues[name], look.queues[name], slot)]
    changed = sorted(due, key=lambda name: (queues[name].slot, name))
    pages += [_written(queues[name], name, slot, *_numbers(look.queues[name])) for name in changed[:AT_ONCE]]
    late = set(changed[AT_ONCE:])
    for name, known in queues.items():
        if name not in late:
            known.slot = slot  # what it held before holds still
    budgets = _budgets(memory, look, slot, pages)
    after = replace(memory, slot=slot, queues=queues, budgets=budgets, workers=_sums_of(look), total=total)
    return Round(after, [page for page in pages if page.slots or page.rolls])


def _begin(look: Look, slot: int, memory: Memory | None) -> Round:
    """The first round, or the first after the clock has gone far back: what is there, and nothing of what happened."""
    names = sorted(look.queues)[: Memory().most if memory is None else memory.most]
    start = replace(memory or Memory(), slot=slot - 1, workers=_sums_of(look))
    queues = {name: Known(slot - 1, _numbers(look.queues[name])[0], (-1.0,) * 5) for name in names}
    budgets = {name: Known(slot - 1, each[2:], (-1.0,) * 2) for name, each in look.budgets.items()}
    total = Known(slot - 1, _whole(look)[0], (-1.0,) * 5)
    return plan(replace(start, queues=queues, budgets=budgets, total=total), look)


# -- queues


def _seen(memory: Memory, look: Look, new_sums: Mapping[str, Sums]) -> dict[str, Known]:
    """Every queue that has a history, as it was known before, with what was measured since."""
    found: dict[str, Known] = {}
    for name in sorted(look.queues)[: memory.most]:
        # One that was not there a round ago began with nothing.
        known = memory.queues.get(name) or Known(memory.slot, (0.0,) * 4, (-1.0,) * 5)
        found[name] = replace(known, sums=_plus(known.sums, new_sums.get(name)))
    return found


def _is_due(known: Known, stats: QueueStats, slot: int) -> bool:
    return _has_changed(known, slot, *_numbers(stats)) or any(_rolls(known, slot)[1].values())


def _has_changed(known: Known, slot: int, counts: Values, levels: Values) -> bool:
    """Not by the age of the oldest job: it grows by itself, and who reads the ring knows that."""
    return (
        counts != known.counts or levels[:4] != known.levels[:4] or known.sums[0] > 0 or slot - known.written >= REFRESH
    )


def _numbers(stats: QueueStats) -> tuple[Values, Values]:
    """The counters of a queue, and what it holds."""
    counts = (stats.done, stats.retried, stats.buried, stats.expired)
    return counts, (stats.ready, stats.delayed, stats.taken, stats.dead, stats.oldest_age)


def _whole(look: Look) -> tuple[Values, Values]:
    """All queues but our own, as one."""
    every = [_numbers(stats) for name, stats in look.queues.items() if not is_system(name)]
    counts = tuple(sum(column) for column in zip(*(counts for counts, _ in every), strict=True)) or (0.0,) * 4
    levels = tuple(sum(column) for column in zip(*(levels[:4] for _, levels in every), strict=True)) or (0.0,) * 4
    return counts, (*levels, max((levels[4] for _, levels in every), default=0.0))


def _totalled(look: Look, total: Known, new_sums: Mapping[str, Sums]) -> Known:
    sums = total.sums
    for name in look.queues:
        if not is_system(name):
            sums = _plus(sums, new_sums.get(name))
    return replace(total, sums=sums)


def _written(known: Known, name: str, slot: int, counts: Values, levels: Values) -> Page:
    """The page of a queue; `known` is brought up to date with it."""
    if name != TOTAL and not _has_changed(known, slot, counts, levels):
        return _page(known, name, QUEUE, [], slot)
    slots = _slots(known, slot)
    events = [spread(round(new - old), len(slots)) for new, old in zip(counts, known.counts, strict=True)]
    if slot - known.slot > LONGEST:
        events = [[0] for _ in events]
    jobs, ran, waited = known.sums
    runs = spread(jobs, len(slots))
    means = (waited / jobs, ran / jobs) if jobs else (0.0, 0.0)
    known.sums = (0, 0.0, 0.0)
    written: list[tuple[int, Values]] = [
        (each, (*(column[number] for column in events), *levels, *means, runs[number]))
        for number, each in enumerate(slots)
    ]
    known.counts, known.levels = counts, levels
    return _page(known, name, QUEUE, written, slot)


# -- budgets


def _budgets(memory: Memory, look: Look, slot: int, pages: list[Page]) -> dict[str, Known]:
    """What is known of the budgets now; their pages are added."""
    found: dict[str, Known] = {}
    for name, (left, reserved, used, refused) in look.budgets.items():
        known = memory.budgets.get(name) or Known(memory.slot, (used, refused), (-1.0,) * 2)
        known = found[name] = replace(known)
        counts, levels = (used, refused), (left, reserved)
        changed = counts != known.counts or levels != known.levels or slot - known.written >= REFRESH
        written = _budget_slots(known, slot, counts, levels) if changed else []
        pages.append(_page(known, f"budget:{name}", BUDGET, written, slot))
        known.slot = slot
    return found


def _budget_slots(known: Known, slot: int, counts: Values, levels: Values) -> list[tuple[int, Values]]:
    slots = _slots(known, slot)
    # The counters are of today: where one is less than before, a day has begun, and all of it is new.
    used, refused = (new - old if new >= old else new for new, old in zip(counts, known.counts, strict=True))
    if slot - known.slot > LONGEST:
        used = refused = 0.0
    parts = spread(round(refused), len(slots))
    known.counts, known.levels = counts, levels
    return [(each, (*levels, used / len(slots), parts[number])) for number, each in enumerate(slots)]


# -- both


def _slots(known: Known, slot: int) -> range:
    """The slots that end with this round; after a long silence the last one alone."""
    return range(known.slot + 1, slot + 1) if 0 < slot - known.slot <= LONGEST else range(slot, slot + 1)


def _page(known: Known, name: str, layout: Layout, written: list[tuple[int, Values]], slot: int) -> Page:
    known.slot, known.written = slot, slot if written else known.written
    known.rolled, rolls = _rolls(known, slot)
    return Page(name, layout, written, {span: some for span, some in rolls.items() if some})


def _rolls(known: Known, slot: int) -> tuple[tuple[int, ...], dict[Span, range]]:
    """The coarse slots that have ended by now and have something in them that was not put together yet."""
    rolled: list[int] = []
    rolls: dict[Span, range] = {}
    for before, span in zip(known.rolled, COARSE, strict=True):
        ratio = SHAPES[span].step // STEP
        ended = (slot + 1) // ratio - 1
        has_news = known.written // ratio > before and ended > before
        first = max(before + 1, ended - SHAPES[FINE].size // ratio + 1)
        rolls[span] = range(first, ended + 1) if has_news else range(0)
        rolled.append(ended if has_news else before)
    return tuple(rolled), rolls


# -- what workers measured


def _measured(memory: Memory, look: Look) -> dict[str, Sums]:
    """What workers did since the last round, by queue. One that is new began with nothing; one that has been there for
    long and was not seen (its heartbeat was late) is believed from now on."""
    found: dict[str, Sums] = {}
    since = (memory.slot + 1) * STEP - LONGEST * STEP
    for id, worker in look.workers.items():
        before = memory.workers.get(id)
        if before is None and worker.started_at < since:
            continue
        for queue, sums in worker.queues.items():
            old = (before or {}).get(queue, (0, 0.0, 0.0))
            if sums[0] > old[0]:
                new = (sums[0] - old[0], max(0.0, sums[1] - old[1]), max(0.0, sums[2] - old[2]))
                found[queue] = _plus(found.get(queue, (0, 0.0, 0.0)), new)
    return found


def _sums_of(look: Look) -> dict[str, dict[str, Sums]]:
    return {id: dict(worker.queues) for id, worker in look.workers.items()}


def _plus(sums: Sums, more: Sums | None) -> Sums:
    return sums if more is None else (sums[0] + more[0], sums[1] + more[1], sums[2] + more[2])
