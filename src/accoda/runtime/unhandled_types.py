"""Jobs of a type that no handler here is for: given back, told once, and started when a worker comes that handles them.

Such a job waits for a pause of at most `LONGEST_UNHANDLED` seconds, so a worker that starts finds those that wait for
it among the first delayed jobs of its queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from accoda.errors import StorageError
from accoda.model import Cursor, Outcome, StartNow
from accoda.runtime.batch import LONGEST_UNHANDLED, UNHANDLED
from accoda.storage.protocol import Store

PAGE = 500
SLACK = 60.0
"""Seconds by which the clocks of the store and of this machine may differ."""

log = logging.getLogger("accoda.worker")


class UnhandledTypes:
    """What one worker gave back. Belongs to its event loop."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def note(self, queue: str, outcomes: Iterable[Outcome]) -> None:
        """These were settled without a run: tell of each type once."""
        for outcome in outcomes:
            reason = getattr(outcome, "reason", "")
            if reason.startswith(UNHANDLED) and (queue, reason) not in self._told:
                self._told.add((queue, reason))
                log.warning("a job of %s was %s; it waits for a worker that does", queue, reason)


async def start_given_back(store: Store, queues: Sequence[str], handles: Callable[[str, bytes], bool], now: int) -> int:
    """Start the jobs that other workers gave back because they do not handle their types, and that we do handle."""
    started = 0
    try:
        stats = (await store.stats()).queues
        for queue in queues:
            if queue in stats and stats[queue].delayed:
                started += await _start(store, queue, handles, now + round(1000 * (LONGEST_UNHANDLED + SLACK)))
    except StorageError as error:
        log.info("jobs that were given back are left to their pauses: %s", error)
    return started


async def _start(store: Store, queue: str, handles: Callable[[str, bytes], bool], until: int) -> int:
    after: Cursor | None = None
    started = 0
    while True:
        page = await store.browse(queue, "delayed", after=after, limit=PAGE)
        due = [job for job in page if job.start_time <= until]
        found = [job for job in due if (job.reason or "").startswith(UNHANDLED) and handles(queue, job.data)]
        if found:
            started += await store.change([StartNow(job.id, queue=queue) for job in found])
            log.info("%d jobs of %s that other workers do not handle are started", len(found), queue)
        if len(due) < PAGE:
            return started
        after = page[-1].cursor("line")
