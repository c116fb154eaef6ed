"""Forgets dead letters that are older than their queue keeps them (`keep_dead_for`), by the storage's clock.

Finished jobs (`keep_for`) and documents (`ttl`) need no chore: the storage lets them go by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from accoda.storage.protocol import Store

EVERY = 60.0
"""Seconds between two looks."""
PIECE = 1000
"""Dead jobs that one call deletes at most, so that no call holds the store for long."""
PROBE = "retention/clock"

log = logging.getLogger("accoda.worker")


async def forget_dead(store: Store, keep: Mapping[str, float]) -> int:
    """Delete the dead jobs of each queue that were buried longer ago than it keeps them; count them."""
    gone = 0
    now = await clock_of(store) if keep else 0
    for queue, seconds in keep.items():
        before = now - round(seconds * 1000)
        # Several workers may do this at the same time: each job is deleted, and counted, by one of them.
        while before > 0 and (deleted := await store.purge(queue, "dead", before=before, limit=PIECE)):
            gone += deleted
            log.info("forgot %d dead jobs of %s that were buried more than %g s ago", deleted, queue, seconds)
    return gone


async def clock_of(store: Store) -> int:
    """The storage's clock, within the time of a call: a document's end is its beginning plus its time to live."""
    ttl = 60
    await store.write(PROBE, b"", ttl=ttl)
    document = await store.read(PROBE)
    if document is None or document.expires_at is None:  # it took a minute to be read: nothing is deleted this time
        return 0
    return document.expires_at - ttl * 1000
