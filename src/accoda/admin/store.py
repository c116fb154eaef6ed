"""Small questions to a store."""

from __future__ import annotations

from accoda.storage.protocol import Storage

PROBE = "accoda.clock"
"""A queue that is peeked at for the storage's clock; nothing is ever in it."""


async def now_of(store: Storage, queue: str = PROBE) -> int:
    """The present moment by the storage's clock (in a cluster, that of the queue's server)."""
    return (await store.peek(queue)).at
