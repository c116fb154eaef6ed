"""Where a record stands in its line: counted where that is near, otherwise told from entries all over the line.

The orderings of a line are heaps and lanes of hints, made for the head of the line. They give the first in order, but
neither the last of many ranks nor the number between two places, so a long way is sampled. The caller holds the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from accoda.model import Place
from accoda.storage import density
from accoda.storage.density import Entry, Weights
from accoda.storage.memory.line import Line, Record, describe

_LANES = 1024  # so many ranks are looked at one by one
_SAMPLE = 4096  # entries that an estimate is made of


def place_of(own: Record, most: int, now: int) -> Place:
    if own.state not in ("ready", "delayed"):
        return Place(now, describe(own))
    ready = own.line.ready
    others = len(ready) - (own.state == "ready")
    near = 8 * most + 1024  # entries that are worth a walk; many of them may be stale
    if others < near:
        ids = [id for id, record in ready.items() if (record.rank, id) < (own.rank, own.id)]
        return Place(now, describe(own), len(ids), sum(id > own.id for id in ids))
    ahead = _count(own, _ahead(own), most, near)
    if ahead is not None and len(ahead) <= most:
        return Place(now, describe(own), len(ahead), sum(id > own.id for id in ahead))
    behind = _count(own, _behind(own), most, near) if len(own.line.order) <= _LANES else None
    weights = _weights(own)
    least = [0 if ids is None else len(ids) for ids in (ahead, behind)]
    exact = behind is not None and len(behind) <= most
    number = others - least[1] if exact else density.place_of(weights, others, *least)
    return Place(now, describe(own), number, density.newer_of(weights, number), exact)


def _count(own: Record, entries: Iterable[Entry], most: int, near: int) -> set[int] | None:
    """The ids that entries tell of, but no more than `most` and one. None: too many of them are stale."""
    found: set[int] = set()
    for step, (rank, id) in enumerate(entries):
        if step > near:
            return None
        if id != own.id and _counts(own.line, rank, id):
            found.add(id)
            if len(found) > most:
                break
    return found


def _ahead(own: Record) -> Iterator[Entry]:
    for rank, lane in own.line.order.in_order():
        if rank > own.rank:
            return
        if rank < own.rank:
            yield from ((rank, id) for id in lane.after(-1))
        else:
            yield from ((rank, id) for id in lane.before(own.id) if id < own.id)


def _behind(own: Record) -> Iterator[Entry]:
    for rank, lane in own.line.order.sample(_LANES):
        if rank > own.rank:
            yield from ((rank, id) for id in lane.after(-1))
        elif rank == own.rank:
            yield from ((rank, id) for id in lane.after(own.id) if id > own.id)


def _counts(line: Line, rank: float, id: int) -> bool:
    """Whether an entry is no stale one."""
    record = line.ready.get(id)
    return record is not None and record.rank == rank


def _weights(own: Record) -> Weights:
    """What a sample says of both sides. An entry stands for as many as there are for each that is looked at."""
    line = own.line
    ahead = behind = newer = 0.0
    each = max(2, _SAMPLE // max(1, len(line.order)))
    for rank, lane in line.order.sample(_SAMPLE):
        weight = lane.size / max(1, min(lane.size, each))
        for id in lane.sample(each):
            if id == own.id or not _counts(line, rank, id):
                continue
            if (rank, id) < (own.rank, own.id):
                ahead += weight
                newer += weight * (id > own.id)
            else:
                behind += weight
    return Weights(ahead, behind, newer / ahead if ahead else 0.0)
