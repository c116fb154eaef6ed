"""Jobs of a type that no handler here is for: given back, told once, and started when a worker comes that handles them.

Such a job waits for a pause of at most `LONGEST` seconds, so a worker that starts finds those that wait for it among
the first delayed jobs of its queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from accoda.envelope import type_of
from accoda.errors import StorageError
from accoda.model import Cursor, Job, Outcome, Retry, StartNow
from accoda.storage.protocol import Store

REASON = "given back: no handler of this queue in this worker handles"
LONGEST = 60.0
"""Seconds that such a job waits at most before it is looked at again."""
MOST_TOLD = 1000
"""Types that one worker tells of."""
PAGE = 500
SLACK = 60.0
"""Seconds by which the clocks of the store and of this machine may differ."""

log = logging.getLogger("accoda.worker")


def give_back(job: Job) -> Retry:
    """Give a job back whose type nobody here handles: a deploy may be under way. It is no try, and its pauses grow."""
    type = type_of(job.data)
    what = "jobs without a type" if type is None else f"the type {type}"
    return Retry(job.lease, delay=min(LONGEST, 2.0 ** min(job.attempts, 10)), reason=f"{REASON} {what}", counts=False)


def is_given_back(outcome: Outcome) -> bool:
    """Whether it is one of `give_back`."""
    return isinstance(outcome, Retry) and outcome.reason.startswith(REASON)


class UnhandledTypes:
    """What one worker gave back. Belongs to its event loop."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str | None]] = set()

    def note(self, outcomes: Iterable[Outcome], jobs: Mapping[int, Job]) -> None:
        """These were settled without a run: tell of each type once."""
        for outcome in outcomes:
            if isinstance(outcome, Retry) and is_given_back(outcome) and len(self._told) < MOST_TOLD:
                job = jobs[outcome.lease.id]
                what = job.queue, type_of(job.data)
                if what not in self._told:
                    self._told.add(what)
                    about = {"queue": what[0], "type": what[1], "job_id": job.id, "attempt": job.tries + 1}
                    log.warning("%s; it waits for a worker that does", outcome.reason, extra=about)


async def start_given_back(store: Store, queues: Sequence[str], handles: Callable[[str, bytes], bool], now: int) -> int:
    """Start the jobs that other workers gave back because they do not handle their types, and that we do handle."""
    started = 0
    try:
        stats = (await store.stats()).queues
        for queue in queues:
            if queue in stats and stats[queue].delayed:
                started += await _start(store, queue, handles, now + round(1000 * (LONGEST + SLACK)))
    except StorageError as error:
        log.info("jobs that were given back are left to their pauses: %s", error)
    return started


async def _start(store: Store, queue: str, handles: Callable[[str, bytes], bool], until: int) -> int:
    after: Cursor | None = None
    started = 0
    while True:
        page = await store.browse(queue, "delayed", after=after, limit=PAGE)
        due = [job for job in page if job.start_time <= until]
        found = [job for job in due if (job.reason or "").startswith(REASON) and handles(queue, job.data)]
        if found:
            started += await store.change([StartNow(job.id, queue=queue) for job in found])
            log.info("%d jobs of %s that other workers do not handle are started", len(found), queue)
        if len(due) < PAGE:
            return started
        after = page[-1].cursor("line")
