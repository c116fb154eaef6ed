"""Who waits for which job, as far as this process knows, and the ranks that follow from it.

Why no rank is left behind that ignores a waiter: whoever joins or leaves computes the rank from the log up to his own
entry at least, and `Rank(waiters=n)` is applied only while the job has no more entries than he saw. If it is refused,
somebody came later, saw more, and puts it right himself. If he dies before he does, the next sweep sees that there are
more entries than it knows, and does it for him.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from accoda.demand.score import BANDS, Band, Crowd, Weights, band, score
from accoda.demand.sharing import Sharing
from accoda.demand.waiters import Entry, Log
from accoda.errors import VersionConflict
from accoda.model import Enqueued, JobInfo, NewJob, Peek, Rank
from accoda.payload import read_json
from accoda.storage.protocol import Store

_REMEMBERED = 10_000
_PAGE = 500
_AT_ONCE = 50
_SHARE = 0.1
"""The part of its time that a sweep may take; a longer one is made less often."""


class QueueMetrics(Struct, frozen=True, kw_only=True):
    """A demand's waiting jobs in numbers, as the last sweep found them at the moment `at`. Ages are in seconds."""

    at: int = 0
    depth: int = 0
    oldest_age: float = 0.0
    mean_wait: float = 0.0
    bands: dict[Band, int] = {}
    reranked: int = 0


class Standing:
    """The logs of the keys that this process has lately had to do with."""

    def __init__(self, queue: str, cache_queue: str, weights: Weights) -> None:
        self.queue = queue
        self._cache_queue = cache_queue
        self._weights = weights
        self._logs: OrderedDict[str, Log] = OrderedDict()
        self._swept: dict[int, tuple[int, Crowd]] = {}
        self._rest_until = 0.0
        self._cache_looks = Sharing(self._look_into_cache)
        self._joins = Sharing(self._enqueue)
        self._looks = Sharing(self._look_for)
        self._ranks = Sharing(self._rerank, at_once=False)

    async def look_into_cache(self, store: Store, key: str) -> Peek:
        """What is cached of a key, at what moment; one look for all on this loop who ask for it at the same time."""
        return await self._cache_looks.call(key, (store, key))

    async def _look_into_cache(self, calls: Sequence[tuple[Store, str]]) -> list[Peek]:
        store, key = calls[0]
        return [await store.peek(self._cache_queue, key)] * len(calls)

    async def enqueue(self, store: Store, key: str, job: NewJob) -> Enqueued:
        """Join. Those who do it at the same time go together: a store that locks the job locks it once for all."""
        return await self._joins.call(key, (store, job))

    async def _enqueue(self, calls: Sequence[tuple[Store, NewJob]]) -> list[Enqueued]:
        return await calls[0][0].enqueue([job for _, job in calls])

    async def look(self, store: Store, key: str) -> Log | None:
        """The log of the job that holds a key, as it is now; None: nobody holds it."""
        while True:
            log = self._logs.get(key)
            after = 0 if log is None else log.seen
            look = await store.peek(self.queue, key, after=after)
            if look.job is None:
                self._logs.pop(key, None)
                return None
            if log is not None and log.id != look.job.id and self._logs.get(key) is log:
                del self._logs[key]  # it is another job by now
                continue
            log = self._log(key, look.job.id)
            if log.seen < after:
                continue  # others on this loop began it anew while we waited, and the first entries are missing here
            log.add(look.waiters[log.seen - after :])  # they may have added a part of it, too
            log.rank = look.job.rank
            return log

    async def joined(self, store: Store, key: str, entry: Entry, enqueued: Enqueued, at: int) -> None:
        """This process has stored an entry of a key; see that the job's rank heeds it."""
        log = self._logs.get(key)
        if enqueued.what == "created" and (log is None or log.id != enqueued.id):
            log = self._log(key, enqueued.id)
        if log is None or log.id != enqueued.id or enqueued.waiters > log.seen + 1:
            await self._catch_up(store, key, enqueued)
        elif enqueued.waiters == log.seen + 1:
            log.join(entry)
        else:
            # Somebody on this loop has read it before we were told of it, and sees to the rank. To count it again would
            # be to pass over the next one's entry, and to believe him gone.
            return
        if enqueued.what == "created" and log is not None and log.seen == 1:
            log.rank = score(log.crowd, at, self._weights)
        else:
            await self.put_right(store, key, at)

    async def _catch_up(self, store: Store, key: str, enqueued: Enqueued) -> None:
        """Read the log up to an entry that is stored, in one look for all on this loop who want that."""
        log = self._logs.get(key)
        if log is None or log.id != enqueued.id or log.seen < enqueued.waiters:
            await self._looks.call(key, (store, key))

    async def _look_for(self, calls: Sequence[tuple[Store, str]]) -> list[None]:
        await self.look(*calls[0])
        return [None] * len(calls)

    async def put_right(self, store: Store, key: str, at: int | None = None) -> None:
        """Give the job the rank that its waiters make, if it has another."""
        log = self._logs.get(key)
        if log is None:
            return
        moment = (await store.peek(self.queue)).at if at is None else at
        if score(log.crowd, moment, self._weights) != log.rank:
            await self._ranks.call(None, (store, key, moment))

    async def _rerank(self, calls: Sequence[tuple[Store, str, int]]) -> list[None]:
        """Put the ranks of several keys right in one call."""
        found: list[tuple[Log, Rank]] = []
        for key, moment in {key: moment for _, key, moment in calls}.items():
            log = self._logs.get(key)
            if log is not None and (points := score(log.crowd, moment, self._weights)) != log.rank:
                found.append((log, Rank(self.queue, log.id, points, log.seen)))
                # Until there is an answer nobody knows which rank it has: who joins meanwhile must not find that the
                # old one fits again, and leave it at that.
                log.rank = None
        applied = await calls[0][0].rerank([rank for _, rank in found]) if found else 0
        if applied == len(found):
            for log, rank in found:
                if log.seen == rank.waiters:  # else another puts it right, who knows more
                    log.rank = rank.rank
        return [None] * len(calls)

    async def sweep(self, store: Store, worker: str, every: float) -> QueueMetrics | None:
        """Put ranks right that time has made wrong, and count. None: another worker does it, or did it just now.

        It reads all waiting jobs, a page at a time, and touches those whose score has changed.
        """
        if time.monotonic() < self._rest_until or not await self._is_mine(store, worker, every):
            return None
        began = time.monotonic()
        metrics = await self._sweep(store)
        took = time.monotonic() - began
        self._rest_until = began + took / _SHARE if took > every * _SHARE else 0.0
        await store.write(f"demand/{self.queue}/metrics", msgspec.json.encode(metrics))
        return metrics

    async def _sweep(self, store: Store) -> QueueMetrics:
        now = (await store.peek(self.queue)).at
        swept: dict[int, tuple[int, Crowd]] = {}
        bands, ages, reranked = dict.fromkeys(BANDS, 0), 0.0, 0
        oldest, depth = 0.0, 0
        for state in ("ready", "delayed"):
            after: int | None = None
            while page := await store.browse(self.queue, state, after, _PAGE):
                after = page[-1].id
                crowds = await self._crowds(store, page)
                swept.update(crowds)
                ranks = self._wrong(page, crowds, now)
                reranked += await store.rerank(ranks) if ranks else 0
                fresh = {rank.id: rank.rank for rank in ranks}
                for job in page:
                    bands[band(fresh.get(job.id, job.rank))] += 1
                    age = max(0, now - job.created_at) / 1000
                    oldest, ages, depth = max(oldest, age), ages + age, depth + 1
        self._swept = swept
        mean = ages / depth if depth else 0.0
        return QueueMetrics(at=now, depth=depth, oldest_age=oldest, mean_wait=mean, bands=bands, reranked=reranked)

    def _wrong(self, page: Sequence[JobInfo], crowds: dict[int, tuple[int, Crowd]], now: int) -> list[Rank]:
        found = []
        for job in page:
            seen, crowd = crowds.get(job.id, (0, Crowd()))
            rank = score(crowd, now, self._weights)
            if rank != job.rank and job.id in crowds:
                found.append(Rank(self.queue, job.id, rank, seen))
        return found

    async def _crowds(self, store: Store, page: Sequence[JobInfo]) -> dict[int, tuple[int, Crowd]]:
        """Who waits for each job of a page. Only those that have grown since the last sweep are asked for."""
        found: dict[int, tuple[int, Crowd]] = {}
        grown: list[JobInfo] = []
        for job in page:
            known = self._swept.get(job.id)
            if not job.waiters:
                found[job.id] = (0, Crowd())
            elif known is not None and known[0] == job.waiters:
                found[job.id] = known
            elif job.key is not None:
                grown.append(job)
        for start in range(0, len(grown), _AT_ONCE):
            some = grown[start : start + _AT_ONCE]
            logs = await asyncio.gather(*(self.look(store, job.key) for job in some if job.key is not None))
            found.update((log.id, (log.seen, log.crowd)) for log in logs if log is not None)
        return found

    async def _is_mine(self, store: Store, worker: str, every: float) -> bool:
        """One worker of all sweeps at a time: whoever finds the note of the last one gone."""
        try:
            await store.write(f"demand/{self.queue}/sweeper", worker.encode(), version=0, ttl=every * 0.9)
            return True
        except VersionConflict:
            return False

    def _log(self, key: str, id: int) -> Log:
        log = self._logs.get(key)
        if log is None or log.id != id:
            log = self._logs[key] = Log(id, self._weights)
        self._logs.move_to_end(key)
        if len(self._logs) > _REMEMBERED:
            self._logs.popitem(last=False)
        return log


async def read_metrics(store: Store, queue: str) -> QueueMetrics:
    """What the last sweep of a demand's queue found."""
    document = await store.read(f"demand/{queue}/metrics")
    return (document and read_json(document.value, QueueMetrics)) or QueueMetrics(bands=dict.fromkeys(BANDS, 0))
