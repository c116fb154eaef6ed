"""`Store` on a Tarantool server. Each verb is one call of one stored function, which is one transaction there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from accoda.clock import Cancel, Clock
from accoda.errors import VersionConflict
from accoda.model import (
    Document,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    Peek,
    Place,
    Rank,
    Refused,
    State,
    Stats,
    check_document_name,
    check_queue,
    clean,
)
from accoda.storage import inputs
from accoda.storage.closing import Closing
from accoda.storage.density import Look, Stretch
from accoda.storage.signal import Signal
from accoda.storage.standing import stand
from accoda.storage.tarantool import rows
from accoda.storage.tarantool.calls import Calls
from accoda.storage.tarantool.client import Client
from accoda.storage.tarantool.listener import Listener
from accoda.storage.tarantool.watch import Watch

_PURGE_AT_ONCE = 1000
_PAGE = 1000  # jobs of one answer to browse


class TarantoolStorage(Closing):
    """Safe to share between threads and event loops, as long as the loop that opened it runs.

    When an answer is lost with its connection, the call is sent again. Verbs that go by `once` (enqueue, take, settle,
    drop, write, remove, revive, start_now, purge) carry a receipt, by which the server gives the first answer again.
    The others only read, or set something to a value (extend, rerank, pause, resume, give_back): twice is as once.
    """

    def __init__(self, client: Client, clock: Clock | None) -> None:
        self._client = client
        self._signal = Signal()
        self._listener = Listener(client, self._signal)
        self._timers: Clock = clock or LocalTimers()
        self._calls = Calls(client)

    async def close(self) -> None:
        await self._client.close()
        self._signal.ring()

    # -- the hot path

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        inputs.check_jobs(jobs)
        self._client.check()
        return await self._client.at_home(self._calls.enqueue(jobs))

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        inputs.check_take(queue, count, lease, max_cost)
        share = queue, rows.milliseconds(lease), clean(worker)
        self._client.check()
        return await self._client.at_home(self._calls.take(share, count, max_cost))

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        inputs.check_outcomes(outcomes)
        self._client.check()
        return await self._client.at_home(self._calls.settle(outcomes))

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        inputs.check_leases(leases, lease)
        names = rows.Names()
        lease_rows = rows.rows_of_leases(names, leases)
        lost = await self._client.call("extend", (names.list(), lease_rows, rows.milliseconds(lease)), rows.INTS)
        return [Refused(leases[position - 1], "lost") for position in lost]

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        inputs.check_ranks(ranks)
        names = rows.Names()
        new = [(names.place(rank.queue), rank.id, float(rank.rank), rank.waiters) for rank in ranks]
        applied: int = await self._client.call("rerank", (names.list(), new), rows.INT)
        return applied

    async def waiters(self, lease: Lease) -> list[bytes]:
        inputs.check_leases((lease,), 1.0)
        found = await self._client.call("waiters", (lease.queue, lease.id, lease.attempts, True), rows.ANY)
        return rows.waiters(lease.id, found)

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        inputs.check_peek(queue, key, after)
        while True:
            found, damaged = rows.peeked(queue, await self._client.call("peek", (queue, key, after), rows.FOUND))
            if damaged is None:
                return found
            await self._calls.set_aside([damaged])  # each time one less

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        inputs.check_drop(queue, id, waiters)
        dropped: bool = await self._client.once("drop", (queue, id, waiters), rows.FLAG)
        return dropped

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        inputs.check_wait(queues, timeout)
        watch = Watch(self._client, self._listener, self._timers, queues)
        try:
            return await self._signal.wait(self._timers, queues, timeout, watch.look)
        finally:
            watch.end()

    async def stats(self) -> Stats:
        found: rows.Found = await self._client.call("stats", (), rows.STATS)
        return Stats({row.name: rows.stats(row) for row in found.rows})

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        found = rows.documents(await self._client.call("read", (name,), rows.DOCUMENTS))
        return found[0] if found else None

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        inputs.check_write(name, value, version, ttl)
        args = (name, value, version, None if ttl is None else rows.milliseconds(ttl))
        written, found = await self._client.once("write", args, rows.PAIR)
        if not written:
            assert version is not None
            raise VersionConflict(name, version, found)
        return int(found)

    async def documents(self, prefix: str) -> list[Document]:
        inputs.check_prefix(prefix)
        return rows.documents(await self._client.call("documents", (prefix,), rows.DOCUMENTS))

    # -- for people

    async def find(self, id: int) -> JobInfo | None:
        inputs.check_id(id)
        job, damaged = rows.job_found(await self._client.call("find", (id,), rows.FOUND))
        if damaged:
            await self._calls.set_aside([id])
            job, _ = rows.job_found(await self._client.call("find", (id,), rows.FOUND))
        return job

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        inputs.check_browse(queue, state, after, limit)
        page: list[JobInfo] = []
        while len(page) < limit:
            args = (queue, rows.STATE_NUMBERS[state], after, min(_PAGE, limit - len(page)))
            found: rows.Found = await self._client.call("browse", args, rows.JOBS)
            jobs, damaged = rows.infos(queue, found)
            if damaged:  # a dead one is found again, and can be read then
                await self._calls.set_aside(damaged)
                jobs, _ = rows.infos(queue, await self._client.call("browse", args, rows.JOBS))
            page += jobs
            if not jobs:
                break
            after = page[-1].id
        return page

    async def place(self, id: int, most: int = 1000) -> Place | None:
        inputs.check_place(id, most)
        survey, damaged = rows.surveyed(await self._client.call("place", (id, most), rows.FOUND))
        if damaged:
            await self._calls.set_aside([id])
            survey, _ = rows.surveyed(await self._client.call("place", (id, most), rows.FOUND))
        if survey is None:
            return None
        queue = survey.job.queue

        async def look(wanted: list[Look]) -> list[Stretch]:
            return rows.stretches(await self._client.call("stretches", (queue, wanted), rows.STRETCHES))

        return await stand(survey, most, look)

    async def remove(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        removed: int = await self._client.once("remove", (ids,), rows.INT)
        return removed

    async def revive(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        revived: int = await self._client.once("revive", (ids,), rows.INT)
        return revived

    async def start_now(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        started: int = await self._client.once("start_now", (ids,), rows.INT)
        return started

    async def pause(self, queue: str, until: int | None = None) -> None:
        inputs.check_pause(queue, until)
        await self._client.call("pause", (queue, until), rows.FLAG)

    async def resume(self, queue: str) -> None:
        check_queue(queue)
        await self._client.call("resume", (queue,), rows.FLAG)

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        inputs.check_purge(queue, state, before, limit)
        purged, last, more = 0, None, True
        ordered = before is not None or limit is not None
        while more and (limit is None or purged < limit):
            # In pieces: each is one transaction, and between them others have their turn.
            most = _PURGE_AT_ONCE if limit is None else min(_PURGE_AT_ONCE, limit - purged)
            args = (queue, rows.STATE_NUMBERS[state], last, most, ordered, before)
            count, last, more = await self._client.once("purge", args, rows.PURGED)
            purged += count
        return purged


class LocalTimers:
    """How long something takes here, in ms. The server tells lengths of time, so no wall clock matters."""

    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_at(self, moment: int, wake: Callable[[], None]) -> Cancel:
        delay = max(0, moment - time.monotonic_ns() / 1_000_000) / 1000
        return asyncio.get_running_loop().call_later(delay, wake).cancel
