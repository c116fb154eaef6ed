"""Forgets dead letters that are older than their queue keeps them (`keep_dead_for`), by the storage's clock.

Finished jobs (`keep_for`) and documents (`ttl`) need no chore: the storage lets them go by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from accoda.model import Head
from accoda.storage.protocol import Store

EVERY = 60.0
"""Seconds between two looks."""
PIECE = 1000
"""Dead jobs that one call deletes at most, so that no call holds the store for long."""

log = logging.getLogger("accoda.worker")


async def forget_dead(store: Store, keep: Mapping[str, float]) -> int:
    """Delete the dead jobs of each queue that were buried longer ago than it keeps them; count them."""
    gone = 0
    for queue, seconds in keep.items():
        before = (await store.look(Head(queue))).at - round(seconds * 1000)
        # Several workers may do this at the same time: each job is deleted, and counted, by one of them.
        while before > 0 and (deleted := await store.purge(queue, "dead", before=before, limit=PIECE)):
            gone += deleted
            log.info("forgot %d dead jobs of %s that were buried more than %g s ago", deleted, queue, seconds)
    return gone
