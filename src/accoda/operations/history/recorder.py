"""The system job that records: one job for all processes, which comes back every 15 seconds.

    take (lease) ──► read the counters ──► plan ──► write rings ──► Done(lease, then=[the next round])

There is one job, under one key, so one recorder at a time. If its process dies in a round, the round is done again from
the same memory when the lease ends, and writes the same slots of the same rings again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from accoda.errors import AccodaError, StorageError, VersionConflict
from accoda.model import ByKey, Done, Job, NewJob, StartNow
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.history import sparks
from accoda.operations.history.plan import Counters, RingWrite, Round, WorkerSums, pack, plan, unpack
from accoda.operations.history.ring import FINE, SHAPES, STEP, Fence, Layout, Ring, Span, Values, gather
from accoda.operations.host import Host
from accoda.operations.moments import now_of
from accoda.operations.step_jobs import give_back, keep_running
from accoda.runtime.heartbeat import read_heartbeats
from accoda.storage.protocol import Storage, Store

QUEUE = "accoda.history"
KEY = "recorder"
PREFIX = "history/"
"""Rings are the documents `history/{queue}/{span}`."""
KEPT = 8 * 86_400.0
"""Seconds for which a ring is kept after its last write: a day more than the longest span."""
LEASE = 60.0
NAP = 60.0
AT_ONCE = 50
"""Rings that are written at once: enough to share a commit, while other calls get through."""

Workers = Callable[[Store], Awaitable[Mapping[str, WorkerSums]]]
Budgets = Callable[[], Awaitable[Mapping[str, tuple[float, float, float, float]]]]

log = logging.getLogger("accoda.history")


class Overtaken(AccodaError):
    """A later round has written already: ours is obsolete."""


def recorder(host: Host) -> Recorder:
    """The recorder of an app."""

    async def budgets() -> Mapping[str, tuple[float, float, float, float]]:
        views = await host.books.views()
        return {
            name: (view.left, view.reserved, view.used_today, float(view.refused_today)) for name, view in views.items()
        }

    return Recorder(budgets)


async def worker_sums(store: Store) -> Mapping[str, WorkerSums]:
    """What each worker that is alive has done so far, by its heartbeat."""
    return {
        beat.id: WorkerSums(
            beat.started_at, {queue: (sums.jobs, sums.ran, sums.waited) for queue, sums in beat.sums.items()}
        )
        for beat in await read_heartbeats(store)
    }


class Recorder:
    """The system job of `accoda.history`."""

    queue = QUEUE

    def __init__(self, budgets: Budgets | None = None, workers: Workers = worker_sums) -> None:
        self._budgets = budgets
        self._workers = workers

    async def run_once(self, store: Store) -> int:
        """Do the round that is due, if one is."""
        settled = 0
        for job in await store.take(QUEUE, 1, lease=LEASE, worker="recorder"):
            settled += await self._do(store, job)
        return settled

    async def run(self, store: Store) -> None:
        """Do the rounds as they come due, until cancelled."""
        await keep_running(self, store, NAP, ensure_job)

    async def _do(self, store: Store, job: Job) -> bool:
        try:
            done = await self._round(store, job)
        except Overtaken as error:
            log.info("a round of the recorder was too slow: %s", error)
            return False
        except BaseException:
            # Whatever it is (the store is away, we are told to stop): the round goes back, if possible.
            await give_back(store, job)
            raise
        following = NewJob(QUEUE, pack(done.memory), key=KEY, start_at=(done.memory.slot + 2) * STEP)
        return not await store.settle([Done(job.lease, then=[following])])

    async def _round(self, store: Store, job: Job) -> Round:
        done = plan(unpack(job.data), await self._counters(store))
        fence = (job.id, job.attempts)
        for first in range(0, len(done.writes), AT_ONCE):
            some = done.writes[first : first + AT_ONCE]
            await asyncio.gather(*(_write(store, each, fence) for each in some))
        if done.writes:
            await _write_sparks(store, done)
        return done

    async def _counters(self, store: Store) -> Counters:
        workers = await self._workers(store)
        budgets = {} if self._budgets is None else await self._budgets()
        # All but the recorder's own queue: every round changes it, which means nothing.
        stats = {name: each for name, each in (await store.stats()).queues.items() if name != QUEUE}
        own = await bookkeeping(store, stats)
        # The queue's own clock, read last: what was counted happened before it.
        return Counters(await now_of(store, QUEUE), stats, workers, budgets, own)


async def ensure_job(store: Store) -> None:
    """Make sure that the recorder's job is there and comes in time: it may have been deleted, or the clock set back."""
    seen = await store.look(ByKey(QUEUE, KEY))
    if seen.job is None:
        await store.enqueue([NewJob(QUEUE, key=KEY)])
    elif seen.job.state == "delayed" and seen.job.start_time - seen.at > 2 * STEP:
        await store.change([StartNow(seen.job.id)])


async def read_ring(store: Storage, name: str, span: Span, layout: Layout) -> Ring:
    """A stored ring; empty if there is none."""
    found = await store.read(f"{PREFIX}{name}/{span}")
    return Ring(layout, SHAPES[span].size, None if found is None else found.value)


async def _write(store: Storage, write: RingWrite, fence: Fence) -> None:
    """Write one queue's part of a round: the fine slots, then the coarse ones that are merged from them."""
    fine = await _put(store, write, FINE, write.slots, fence)
    for span, slots in write.rolls.items():
        ratio = SHAPES[span].step // STEP
        merged = [(slot, gather(fine, slot * ratio, ratio, write.layout)) for slot in slots]
        await _put(store, write, span, [(slot, values) for slot, values in merged if values is not None], fence)


async def _put(store: Storage, write: RingWrite, span: Span, slots: Sequence[tuple[int, Values]], fence: Fence) -> Ring:
    """Put slots into a ring. Compare-and-set, and the fence in the ring, keep out a round that was overtaken: its lease
    has ended while it worked, and another round has written the same slots from the same memory."""
    name = f"{PREFIX}{write.name}/{span}"
    while True:
        found = await store.read(name)
        ring = Ring(write.layout, SHAPES[span].size, None if found is None else found.value)
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


async def _write_sparks(store: Store, done: Round) -> None:
    """Nothing depends on this document: if another process has just written it, that is as good."""
    found = await store.read(sparks.DOCUMENT)
    value = sparks.update(None if found is None else found.value, done.memory.slot, done.writes)
    try:
        await store.write(sparks.DOCUMENT, value, version=0 if found is None else found.version, ttl=86_400.0)
    except VersionConflict:
        return
    except StorageError as error:
        log.info("no sparks this time: %s", error)
