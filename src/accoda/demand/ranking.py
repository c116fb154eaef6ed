"""Keeps the ranks of a demand's jobs in line with their waiters, and batches the calls of concurrent requests.

Why no rank ignores a waiter: a process that joins or leaves computes the rank from the log up to its own entry at
least, and its `Rerank(waiters=n)` is applied only while the job has no more entries than it saw. If that is refused, a
later entry was added by a process that saw more and reranks the job itself. If that process dies before it does, the
next sweep that reads all jobs (at the latest after `EVERYTHING`) finds more entries than it knows, and reranks the job.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence

from msgspec.structs import replace

from accoda.demand.metrics import QueueMetrics
from accoda.demand.records import claim
from accoda.demand.score import Crowd, Weights, changes_at, score
from accoda.demand.waiters import Entry, WaiterLog
from accoda.demand.waiting import WAITING, Count, Tally, marks, read_count, write_count
from accoda.limits import MOMENT
from accoda.model import ByKey, Cursor, Enqueued, Head, JobInfo, Look, NewJob, Rerank
from accoda.storage.common.call_batching import CallBatching
from accoda.storage.protocol import Store

EVERYTHING = 60_000
"""Milliseconds after which a sweep reads all jobs although nothing seems to have changed: a process that was killed
right after it joined has neither reranked the job nor counted itself."""
_REMEMBERED = 10_000
_PAGE = 500
_AT_ONCE = 50
_SHARE = 0.1
"""The share of its time that a sweep may take; a longer one is made less often."""


class Ranking:
    """The waiter logs of the keys that this process used lately. Belongs to one event loop.

    Concurrent requests for a key share calls: each of these calls reads, or adds to, what is stored at the time it is
    sent, and it is sent after its callers asked, so one answer is true for all of them.
    """

    def __init__(self, queue: str, cache_queue: str, weights: Weights) -> None:
        self.queue = queue
        self._cache_queue = cache_queue
        self._weights = weights
        self._logs: OrderedDict[str, WaiterLog] = OrderedDict()
        self._swept: dict[int, tuple[int, Crowd]] = {}
        self._rest_until = 0.0
        self._cache_looks: CallBatching[str, Store, Look] = CallBatching(self._look_up_cached)
        self._joins: CallBatching[str, tuple[Store, NewJob], Enqueued] = CallBatching(self._enqueue)
        self._catch_ups: CallBatching[str, Store, None] = CallBatching(self._catch_up)
        self._reranks: CallBatching[None, tuple[Store, str, int], None] = CallBatching(self._rerank)

    async def look_up_cached(self, store: Store, key: str) -> Look:
        """The cached result of a key, and the storage's present moment."""
        return await self._cache_looks.call(key, store)

    async def _look_up_cached(self, key: str, stores: Sequence[Store]) -> list[Look]:
        return [await stores[0].look(ByKey(self._cache_queue, key))] * len(stores)

    async def enqueue(self, store: Store, key: str, job: NewJob) -> Enqueued:
        """Enqueue a fetch job with a waiter, or attach the waiter to the job that is there."""
        return await self._joins.call(key, (store, job))

    async def _enqueue(self, key: str, calls: Sequence[tuple[Store, NewJob]]) -> list[Enqueued]:
        return await calls[0][0].enqueue([job for _, job in calls])

    async def look(self, store: Store, key: str) -> WaiterLog | None:
        """The present log of the job that holds a key; None if no job does."""
        while True:
            log = self._logs.get(key)
            after = 0 if log is None else log.seen
            look = await store.look(ByKey(self.queue, key), waiters_after=after)
            if look.job is None:
                self._logs.pop(key, None)
                return None
            if log is not None and log.id != look.job.id and self._logs.get(key) is log:
                del self._logs[key]  # another job holds the key by now
                continue
            log = self._log(key, look.job.id)
            if log.seen < after:
                continue  # another task replaced the log meanwhile, and this answer lacks its first entries
            log.add(look.waiters[log.seen - after :])  # another task may have added some of them meanwhile
            log.rank = look.job.rank
            return log

    async def joined(self, store: Store, key: str, entry: Entry, enqueued: Enqueued, at: int) -> None:
        """This process has stored an entry of a key: update the job's rank."""
        log = self._logs.get(key)
        if enqueued.what == "created" and (log is None or log.id != enqueued.id):
            log = self._log(key, enqueued.id)
        if log is None or log.id != enqueued.id or enqueued.waiters > log.seen + 1:
            await self._catch_ups.call(key, store)
        elif enqueued.waiters == log.seen + 1:
            log.add_own(entry)
        else:
            # Another task on this loop read the entry before this one was told of it, and updates the rank. Counting it
            # again would skip the next entry, whose waiter would then seem to have left.
            return
        if enqueued.what == "created" and log is not None and log.seen == 1:
            log.rank = score(log.crowd, at, self._weights)
        else:
            await self.update(store, key, at)

    async def _catch_up(self, key: str, stores: Sequence[Store]) -> list[None]:
        await self.look(stores[0], key)
        return [None] * len(stores)

    async def update(self, store: Store, key: str, at: int | None = None) -> None:
        """Give the job the rank that follows from its waiters, if it has another."""
        log = self._logs.get(key)
        if log is None:
            return
        moment = (await store.look(Head(self.queue))).at if at is None else at
        if score(log.crowd, moment, self._weights) != log.rank:
            await self._reranks.call(None, (store, key, moment))

    async def _rerank(self, _: None, calls: Sequence[tuple[Store, str, int]]) -> list[None]:
        found: list[tuple[WaiterLog, Rerank]] = []
        for key, moment in {key: moment for _, key, moment in calls}.items():
            log = self._logs.get(key)
            if log is not None and (rank := score(log.crowd, moment, self._weights)) != log.rank:
                found.append((log, Rerank(log.id, rank, log.seen, self.queue)))
                # Until the answer comes the job's rank is unknown: a task that joins meanwhile must not conclude that
                # the old rank fits again.
                log.rank = None
        applied = await calls[0][0].change([rerank for _, rerank in found]) if found else 0
        if applied == len(found):
            for log, rerank in found:
                if log.seen == rerank.waiters:  # otherwise another task knows more, and reranks the job
                    log.rank = rerank.rank
        return [None] * len(calls)

    async def sweep(self, store: Store, every: float) -> QueueMetrics | None:
        """Rerank the jobs whose score time has changed, and count. None: another worker does it, or did it just now.

        If nothing has happened since the last sweep, and no score has changed by time, it reads no job: then the
        numbers are those of the last one.
        """
        if time.monotonic() < self._rest_until or not await claim(store, f"demand/{self.queue}/sweeper", every):
            return None
        began = time.monotonic()
        now = (await store.look(Head(self.queue))).at
        # Read before the jobs are: what happens after this line makes the marks of the next sweep differ from these.
        seen, last = await marks(store, self.queue), await read_count(store, self.queue)
        if last.marks == seen and now < last.next_at and now - last.waiting.at < EVERYTHING:
            return replace(last.waiting, reranked=0)
        count = replace(await self._sweep(store), marks=seen)
        took = time.monotonic() - began
        self._rest_until = began + took / _SHARE if took > every * _SHARE else 0.0
        await write_count(store, self.queue, count)
        return count.waiting

    async def _sweep(self, store: Store) -> Count:
        """Read all waiting jobs page by page, and change those whose score is different."""
        now = (await store.look(Head(self.queue))).at
        swept: dict[int, tuple[int, Crowd]] = {}
        tally, reranked = Tally(now), 0
        for state in WAITING:
            after: Cursor | None = None
            while page := await store.browse(self.queue, state, order="id", after=after, limit=_PAGE):
                after = page[-1].cursor("id")
                crowds = await self._crowds(store, page)
                swept.update(crowds)
                reranks = self._wrong(page, crowds, now)
                reranked += await store.change(reranks) if reranks else 0
                ranks = {rerank.id: rerank.rank for rerank in reranks}
                for job in page:
                    tally.add(job, ranks.get(job.id, job.rank))
        self._swept = swept
        changes = (changes_at(crowd, now, self._weights) for _, crowd in swept.values())
        return Count(waiting=tally.metrics(reranked), next_at=min(changes, default=MOMENT))

    def _wrong(self, page: Sequence[JobInfo], crowds: dict[int, tuple[int, Crowd]], now: int) -> list[Rerank]:
        found = []
        for job in page:
            if job.id in crowds:
                seen, crowd = crowds[job.id]
                if (rank := score(crowd, now, self._weights)) != job.rank:
                    found.append(Rerank(job.id, rank, seen, self.queue))
        return found

    async def _crowds(self, store: Store, page: Sequence[JobInfo]) -> dict[int, tuple[int, Crowd]]:
        """For each job of a page its number of entries and its crowd. Only logs that have grown are read."""
        found: dict[int, tuple[int, Crowd]] = {}
        grown: list[str] = []
        for job in page:
            known = self._swept.get(job.id)
            if not job.waiters:
                found[job.id] = (0, Crowd())
            elif known is not None and known[0] == job.waiters:
                found[job.id] = known
            elif job.key is not None:
                grown.append(job.key)
        for start in range(0, len(grown), _AT_ONCE):
            logs = await asyncio.gather(*(self.look(store, key) for key in grown[start : start + _AT_ONCE]))
            found.update((log.id, (log.seen, log.crowd)) for log in logs if log is not None)
        return found

    def _log(self, key: str, id: int) -> WaiterLog:
        log = self._logs.get(key)
        if log is None or log.id != id:
            log = self._logs[key] = WaiterLog(id, self._weights)
        self._logs.move_to_end(key)
        if len(self._logs) > _REMEMBERED:
            self._logs.popitem(last=False)
        return log
