"""Rings in a store: the documents `history/{queue}/{span}`."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.errors import AccodaError, VersionConflict
from accoda.history.plan import Page
from accoda.history.points import FINE, SHAPES, STEP, Span
from accoda.history.ring import Fence, Layout, Ring, Values, gather
from accoda.storage.protocol import Storage

PREFIX = "history/"
KEPT = 8 * 86_400.0
"""Seconds that a ring is kept after it was last written: a day longer than the longest span."""


class Overtaken(AccodaError):
    """A later round has written already: ours is not wanted any more."""


def document(name: str, span: Span) -> str:
    """Where the ring of a queue is."""
    return f"{PREFIX}{name}/{span}"


async def read_ring(store: Storage, name: str, span: Span, layout: Layout) -> Ring:
    """A ring as it is; empty where there is none."""
    found = await store.read(document(name, span))
    return Ring(layout, SHAPES[span].size, None if found is None else found.value)


async def write_page(store: Storage, page: Page, fence: Fence) -> None:
    """Write one queue's part of a round: the fine slots, then the coarse ones that are made of them."""
    fine = await _put(store, page, FINE, page.slots, fence)
    for span, slots in page.rolls.items():
        ratio = SHAPES[span].step // STEP
        made = [(slot, gather(fine, slot * ratio, ratio, page.layout)) for slot in slots]
        await _put(store, page, span, [(slot, values) for slot, values in made if values is not None], fence)


async def _put(store: Storage, page: Page, span: Span, slots: Sequence[tuple[int, Values]], fence: Fence) -> Ring:
    """Put slots into a ring. Compare-and-set, and the fence that the ring carries, keep out a round that was overtaken:
    its lease has ended while it was at work, and another has done the same slots from the same memory."""
    name = document(page.name, span)
    while True:
        found = await store.read(name)
        ring = Ring(page.layout, SHAPES[span].size, None if found is None else found.value)
        if ring.fence > fence:
            raise Overtaken(f"{name} was written by a later round")
        if not slots:
            return ring
        for slot, values in slots:
            ring.put(slot, values)
        ring.fence = fence
        try:
            await store.write(name, ring.encode(), version=0 if found is None else found.version, ttl=KEPT)
            return ring
        except VersionConflict:
            continue
