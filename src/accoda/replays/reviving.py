"""Reviving many, and telling what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from accoda.storage.protocol import Store


class Revived(Struct, frozen=True):
    """How many were revived; stay dead, because another job holds their key; or were gone before it came to them."""

    revived: int = 0
    held: int = 0
    gone: int = 0

    @property
    def matched(self) -> int:
        return self.revived + self.held + self.gone

    def plus(self, other: Revived) -> Revived:
        return Revived(self.revived + other.revived, self.held + other.held, self.gone + other.gone)


async def revive_all(store: Store, ids: Sequence[int], until: int, *, again: bool = False) -> Revived:
    """Revive them all in one call, and count. Only where some were not revived, each is looked at.

    `until`: one that is dead since then was alive in between. `again`: this was tried before, and the try may have
    worked although nobody was told; then those that are no longer dead are taken for revived by it.
    """
    if not ids:
        return Revived()
    revived = await store.revive(ids)
    if revived == len(ids):
        return Revived(revived)
    held = 0
    for id in ids:
        job = await store.find(id)
        held += job is not None and job.state == "dead" and (job.ended_at or 0) < until
    held = min(held, len(ids) - revived)
    others = len(ids) - revived - held
    return Revived(revived + others, held) if again else Revived(revived, held, others)
