"""What a round of the recorder writes, computed from what the last round left (`Memory`) and the counters now. Pure.

A round ends every slot up to the present one. What happened since the round before is the difference of two counters;
if rounds were late, it is divided evenly over the slots in between. After more than `LONGEST` slots without a record it
is unknown when it happened: those slots stay unknown. A queue in which nothing changed is not written; those that
changed and found no room in this round come first in the next, with their difference.

The job that ends a round enqueues the next one with its memory, in one atomic step. So the next round, in any process,
continues from exactly what was recorded, and a round that is repeated after a crash writes the same again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.limits import allowed
from accoda.model import QueueStats
from accoda.operations.history.ring import BUDGET, FINE, QUEUE, SHAPES, STEP, Layout, Span, Values, spread

LONGEST = 20
"""The most slots over which a difference is divided: five minutes."""
BACK = 2
"""Slots by which the clock may go back without a new beginning."""
AT_ONCE = 200
"""Queues that one round writes at most."""
REFRESH = 86_400_000 // STEP
"""Slots after which a queue is written although nothing changed, so that its ring does not expire."""
TOTAL = "*"
"""All queues except Accoda's own, as one. No queue has this name."""
COARSE: tuple[Span, ...] = tuple(span for span in SHAPES if span != FINE)
MOST_BYTES = 16 << 20
"""The most that a memory is unpacked to, whatever is stored."""
MOST_QUEUES = 5000
Sums = tuple[int, float, float]
"""Jobs, the seconds that they ran, and the seconds that they waited."""


class Recorded(Struct, array_like=True):
    """A queue (or a budget) as of the end of `slot`.

    `counts` are its counters, `levels` what it held. `written` is the last slot in its ring, `rolled` the last coarse
    slots (by span) that were made from it. `sums` were measured and are not written yet.
    """

    slot: int
    counts: tuple[float, ...]
    levels: tuple[float, ...]
    written: int = 0
    rolled: tuple[int, ...] = (0, 0)
    sums: Sums = (0, 0.0, 0.0)


class Memory(Struct, array_like=True):
    """What a round leaves for the next. `slot` is the last one that a round has ended; `workers` has each worker's sums
    by queue. Of more queues than `most`, only the first by name are recorded."""

    slot: int = 0
    queues: dict[str, Recorded] = {}
    budgets: dict[str, Recorded] = {}
    workers: dict[str, dict[str, Sums]] = {}
    total: Recorded | None = None
    most: int = MOST_QUEUES


def pack(memory: Memory) -> bytes:
    """As a job's data. If it does not fit, because names are long or limits low, fewer queues are recorded."""
    while True:
        data = zlib.compress(_encoder.encode(memory), 1)
        if len(data) <= allowed.payload or not (memory.queues or memory.workers):
            return data
        half = sorted(memory.queues)[: len(memory.queues) // 2]
        memory = replace(memory, queues={name: memory.queues[name] for name in half}, workers={}, most=len(half))


def unpack(data: bytes) -> Memory | None:
    """The memory in a job's data; None if it is the first one, or cannot be read: recording then begins anew."""
    try:
        opened = zlib.decompressobj()
        raw = opened.decompress(data, MOST_BYTES)
        return _decoder.decode(raw) if opened.eof else None
    except (zlib.error, ValueError, RecursionError):  # msgspec's and Unicode's are ValueErrors
        return None


class WorkerSums(Struct, frozen=True):
    """What a worker has measured since it started."""

    started_at: int
    queues: Mapping[str, Sums]


class Counters(Struct, frozen=True):
    """The store at one moment, by its clock. Budgets: left, reserved, used and refused today. `own`: Accoda's own
    queues, which no total counts."""

    at: int
    queues: Mapping[str, QueueStats]
    workers: Mapping[str, WorkerSums] = {}
    budgets: Mapping[str, tuple[float, float, float, float]] = {}
    own: frozenset[str] = frozenset()


class RingWrite(Struct, frozen=True):
    """What to write for one queue or budget: fine slots, and coarse slots to be merged from fine ones."""

    name: str
    layout: Layout
    slots: list[tuple[int, Values]]
    rolls: dict[Span, range]


class Round(Struct, frozen=True):
    """What to write, and the memory for the next round."""

    memory: Memory
    writes: list[RingWrite]


def plan(memory: Memory | None, now: Counters) -> Round:
    """One round. There is nothing to write if the slot has not ended yet."""
    slot = now.at // STEP - 1
    if memory is None or slot < memory.slot - BACK:
        return _begin(now, slot, memory)
    if slot <= memory.slot:
        return Round(memory, [])
    new_sums = _measured(memory, now)
    total = _totalled(now, memory.total or Recorded(slot, (0.0,) * 4, (0.0,) * 5), new_sums)
    writes = [_written(total, TOTAL, slot, *_whole(now))]
    queues = _seen(memory, now, new_sums)
    due = [name for name in queues if _is_due(queues[name], now.queues[name], slot)]
    changed = sorted(due, key=lambda name: (queues[name].slot, name))
    writes += [_written(queues[name], name, slot, *_numbers(now.queues[name])) for name in changed[:AT_ONCE]]
    late = set(changed[AT_ONCE:])
    for name, known in queues.items():
        if name not in late:
            known.slot = slot  # nothing has changed in it
    budgets = _budgets(memory, now, slot, writes)
    after = replace(memory, slot=slot, queues=queues, budgets=budgets, workers=_sums_of(now), total=total)
    return Round(after, [each for each in writes if each.slots or each.rolls])


def _begin(now: Counters, slot: int, memory: Memory | None) -> Round:
    """The first round, or the first after the clock has gone far back: what is there, but not what happened."""
    names = sorted(now.queues)[: Memory().most if memory is None else memory.most]
    start = replace(memory or Memory(), slot=slot - 1, workers=_sums_of(now))
    queues = {name: Recorded(slot - 1, _numbers(now.queues[name])[0], (-1.0,) * 5) for name in names}
    budgets = {name: Recorded(slot - 1, each[2:], (-1.0,) * 2) for name, each in now.budgets.items()}
    total = Recorded(slot - 1, _whole(now)[0], (-1.0,) * 5)
    return plan(replace(start, queues=queues, budgets=budgets, total=total), now)


# -- queues


def _seen(memory: Memory, now: Counters, new_sums: Mapping[str, Sums]) -> dict[str, Recorded]:
    """Every recorded queue as of the last round, with what was measured since."""
    found: dict[str, Recorded] = {}
    for name in sorted(now.queues)[: memory.most]:
        # A queue that is new since the last round began with nothing.
        known = memory.queues.get(name) or Recorded(memory.slot, (0.0,) * 4, (-1.0,) * 5)
        found[name] = replace(known, sums=_plus(known.sums, new_sums.get(name)))
    return found


def _is_due(known: Recorded, stats: QueueStats, slot: int) -> bool:
    return _has_changed(known, slot, *_numbers(stats)) or any(_rolls(known, slot)[1].values())


def _has_changed(known: Recorded, slot: int, counts: Values, levels: Values) -> bool:
    """The age of the oldest job does not count: it grows by itself, which the reader of the ring makes up for."""
    return (
        counts != known.counts or levels[:4] != known.levels[:4] or known.sums[0] > 0 or slot - known.written >= REFRESH
    )


def _numbers(stats: QueueStats) -> tuple[Values, Values]:
    """The counters of a queue, and what it holds."""
    counts = (stats.done, stats.retried, stats.buried, stats.expired)
    return counts, (stats.ready, stats.delayed, stats.taken, stats.dead, stats.oldest_age)


def _whole(now: Counters) -> tuple[Values, Values]:
    """All queues except Accoda's own, as one."""
    every = [_numbers(stats) for name, stats in now.queues.items() if name not in now.own]
    counts = tuple(sum(column) for column in zip(*(counts for counts, _ in every), strict=True)) or (0.0,) * 4
    levels = tuple(sum(column) for column in zip(*(levels[:4] for _, levels in every), strict=True)) or (0.0,) * 4
    return counts, (*levels, max((levels[4] for _, levels in every), default=0.0))


def _totalled(now: Counters, total: Recorded, new_sums: Mapping[str, Sums]) -> Recorded:
    sums = total.sums
    for name in now.queues:
        if name not in now.own:
            sums = _plus(sums, new_sums.get(name))
    return replace(total, sums=sums)


def _written(known: Recorded, name: str, slot: int, counts: Values, levels: Values) -> RingWrite:
    """What to write for a queue; updates `known`."""
    if name != TOTAL and not _has_changed(known, slot, counts, levels):
        return _write(known, name, QUEUE, [], slot)
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
    return _write(known, name, QUEUE, written, slot)


# -- budgets


def _budgets(memory: Memory, now: Counters, slot: int, writes: list[RingWrite]) -> dict[str, Recorded]:
    """The budgets as of now; adds what to write for them."""
    found: dict[str, Recorded] = {}
    for name, (left, reserved, used, refused) in now.budgets.items():
        known = memory.budgets.get(name) or Recorded(memory.slot, (used, refused), (-1.0,) * 2)
        known = found[name] = replace(known)
        counts, levels = (used, refused), (left, reserved)
        changed = counts != known.counts or levels != known.levels or slot - known.written >= REFRESH
        written = _budget_slots(known, slot, counts, levels) if changed else []
        writes.append(_write(known, f"budget:{name}", BUDGET, written, slot))
        known.slot = slot
    return found


def _budget_slots(known: Recorded, slot: int, counts: Values, levels: Values) -> list[tuple[int, Values]]:
    slots = _slots(known, slot)
    # The counters are of today: if one is less than before, a day has begun, and all of it is new.
    used, refused = (new - old if new >= old else new for new, old in zip(counts, known.counts, strict=True))
    if slot - known.slot > LONGEST:
        used = refused = 0.0
    parts = spread(round(refused), len(slots))
    known.counts, known.levels = counts, levels
    return [(each, (*levels, used / len(slots), parts[number])) for number, each in enumerate(slots)]


# -- both


def _slots(known: Recorded, slot: int) -> range:
    """The slots that end with this round; after a long gap only the last one."""
    return range(known.slot + 1, slot + 1) if 0 < slot - known.slot <= LONGEST else range(slot, slot + 1)


def _write(known: Recorded, name: str, layout: Layout, written: list[tuple[int, Values]], slot: int) -> RingWrite:
    known.slot, known.written = slot, slot if written else known.written
    known.rolled, rolls = _rolls(known, slot)
    return RingWrite(name, layout, written, {span: some for span, some in rolls.items() if some})


def _rolls(known: Recorded, slot: int) -> tuple[tuple[int, ...], dict[Span, range]]:
    """The coarse slots that have ended by now and hold something that was not merged yet."""
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


def _measured(memory: Memory, now: Counters) -> dict[str, Sums]:
    """What workers did since the last round, by queue. A new worker began with nothing; one that has been there for
    long and was not seen (its heartbeat was late) counts from now on."""
    found: dict[str, Sums] = {}
    since = (memory.slot + 1) * STEP - LONGEST * STEP
    for id, worker in now.workers.items():
        before = memory.workers.get(id)
        if before is None and worker.started_at < since:
            continue
        for queue, sums in worker.queues.items():
            old = (before or {}).get(queue, (0, 0.0, 0.0))
            if sums[0] > old[0]:
                new = (sums[0] - old[0], max(0.0, sums[1] - old[1]), max(0.0, sums[2] - old[2]))
                found[queue] = _plus(found.get(queue, (0, 0.0, 0.0)), new)
    return found


def _sums_of(now: Counters) -> dict[str, dict[str, Sums]]:
    return {id: dict(worker.queues) for id, worker in now.workers.items()}


def _plus(sums: Sums, more: Sums | None) -> Sums:
    return sums if more is None else (sums[0] + more[0], sums[1] + more[1], sums[2] + more[2])


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Memory)
