"""The duty that records: one job for all processes, which comes back every 15 seconds.

    take (lease) ──► look at the counters ──► plan ──► write rings ──► Done(lease, then=[the next round])

There is one job, under one key, so one recorder at a time; whoever dies in a round leaves a lease, and at its end the
round is done again from the same memory. What it writes again is the same slots of the same rings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from accoda.errands import keep_on, put_back
from accoda.errors import StorageError, VersionConflict
from accoda.history import sparks
from accoda.history.memory import pack, unpack
from accoda.history.plan import Look, Round, WorkerSums, plan
from accoda.history.points import STEP
from accoda.history.rings import Overtaken, write_page
from accoda.model import Done, Job, NewJob
from accoda.storage.protocol import Store

QUEUE = "accoda.history"
KEY = "recorder"
LEASE = 60.0
NAP = 60.0
AT_ONCE = 50
"""Rings that are written at once: enough to share a commit, and others get through."""

Workers = Callable[[Store], Awaitable[Mapping[str, WorkerSums]]]
Budgets = Callable[[], Awaitable[Mapping[str, tuple[float, float, float, float]]]]

log = logging.getLogger("accoda.history")


class Recorder:
    """The duty of `accoda.history`. `workers` and `budgets` tell what stands in their documents."""

    queue = QUEUE

    def __init__(self, workers: Workers | None = None, budgets: Budgets | None = None) -> None:
        self._workers = workers
        self._budgets = budgets

    async def run_once(self, store: Store) -> int:
        """Do the round that is due, if one is."""
        settled = 0
        for job in await store.take(QUEUE, 1, lease=LEASE, worker="recorder"):
            settled += await self._do(store, job)
        return settled

    async def run(self, store: Store) -> None:
        """Do the rounds as they come due, until cancelled."""
        await keep_on(self, store, NAP, see_to)

    async def _do(self, store: Store, job: Job) -> bool:
        try:
            done = await self._round(store, job)
        except Overtaken as error:
            log.info("a round of the recorder was too slow: %s", error)
            return False
        except BaseException:
            # Whatever it is (the store is away, we are told to stop): the round goes back, if that is heard.
            await put_back(store, job)
            raise
        following = NewJob(QUEUE, pack(done.memory), key=KEY, start_at=(done.memory.slot + 2) * STEP)
        return not await store.settle([Done(job.lease, then=[following])])

    async def _round(self, store: Store, job: Job) -> Round:
        done = plan(unpack(job.data), await self._look(store))
        fence = (job.id, job.attempts)
        for first in range(0, len(done.pages), AT_ONCE):
            some = done.pages[first : first + AT_ONCE]
            await asyncio.gather(*(write_page(store, page, fence) for page in some))
        if done.pages:
            await _write_sparks(store, done)
        return done

    async def _look(self, store: Store) -> Look:
        workers = {} if self._workers is None else await self._workers(store)
        budgets = {} if self._budgets is None else await self._budgets()
        # All but our own queue: every round changes it, and that says nothing to anybody.
        stats = {name: each for name, each in (await store.stats()).queues.items() if name != QUEUE}
        # The queue's own clock, after the look: what was counted happened before it.
        return Look((await store.peek(QUEUE)).at, stats, workers, budgets)


async def see_to(store: Store) -> None:
    """See that the recorder's job is there and comes in time: it may have been deleted, or its clock gone back."""
    seen = await store.peek(QUEUE, KEY)
    if seen.job is None:
        await store.enqueue([NewJob(QUEUE, key=KEY)])
    elif seen.job.state == "delayed" and seen.job.start_time - seen.at > 2 * STEP:
        await store.start_now([seen.job.id])


async def _write_sparks(store: Store, done: Round) -> None:
    """Nobody depends on this one: where somebody else has just written it, that is as good."""
    found = await store.read(sparks.DOCUMENT)
    value = sparks.update(None if found is None else found.value, done.memory.slot, done.pages)
    try:
        await store.write(sparks.DOCUMENT, value, version=0 if found is None else found.version, ttl=86_400.0)
    except VersionConflict:
        return
    except StorageError as error:
        log.info("no sparks this time: %s", error)
