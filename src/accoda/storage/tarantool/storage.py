"""`Store` on a Tarantool server. Each verb is one call of one stored function, which is one transaction there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

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
from accoda.storage.signal import Signal
from accoda.storage.tarantool import rows
from accoda.storage.tarantool.client import Client
from accoda.storage.tarantool.listener import Listener

_MOST_JOBS = 1_000_000  # in one take
_PURGE_AT_ONCE = 10_000


class TarantoolStorage(Closing):
    """Safe to share between threads and event loops, as long as the loop that opened it runs.

    When an answer is lost with its connection, the call is sent again. Verbs that go by `once` (enqueue, take, settle,
    write, remove, revive, purge) carry a receipt, by which the server gives the first answer again. The others only
    read, or set something to a value (extend, rerank, pause, resume, give_back), so that twice is the same as once.
    """

    def __init__(self, client: Client, clock: Clock | None) -> None:
        self._client = client
        self._signal = Signal()
        self._listener = Listener(client, self._signal)
        self._timers: Clock = clock or LocalTimers()
        self._undone: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        await self._client.close()
        self._signal.ring()

    # -- the hot path

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        inputs.check_jobs(jobs)
        names = rows.Names()
        news = rows.rows_of_jobs(names, jobs)
        first, joined = await self._client.once("enqueue", (names.list(), news), rows.ENQUEUED)
        return rows.enqueued(jobs, first, joined)

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        inputs.check_take(queue, count, lease, max_cost)
        args = (queue, min(count, _MOST_JOBS), rows.milliseconds(lease), max_cost, clean(worker))
        found = await self._client.once("take", args, rows.JOBS, lambda found: self._give_back(queue, found))
        return rows.taken(queue, found)

    def _give_back(self, queue: str, found: list[rows.JobRow]) -> None:
        """A take was cancelled, and then its answer came: nobody will run these jobs."""
        if not found:
            return
        leases = [(row.id, row.attempts) for row in found]
        task = asyncio.get_running_loop().create_task(self._client.call("give_back", (queue, leases), rows.INT))
        self._undone.add(task)  # so that it is not collected while it runs

        def forget(task: asyncio.Task[Any]) -> None:
            self._undone.discard(task)
            if not task.cancelled():
                task.exception()  # if the server cannot be reached, they come back when their lease ends

        task.add_done_callback(forget)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        inputs.check_outcomes(outcomes)
        names = rows.Names()
        outcome_rows, follow_ups = rows.rows_of_outcomes(names, outcomes)
        answer = await self._client.once("settle", (names.list(), outcome_rows, follow_ups), rows.REFUSED)
        return rows.refused(outcomes, answer)

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
        found = await self._client.call("waiters", (lease.queue, lease.id, lease.attempts), rows.WAITERS)
        return [rows.bytes_of(raw) for raw in found]

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        inputs.check_wait(queues, timeout)
        names = list(dict.fromkeys(queues))
        who = object()

        async def look() -> tuple[bool, int | None]:
            return await self._client.at_home(self._look(who, names))

        try:
            return await self._signal.wait(self._timers, names, timeout, look)
        finally:
            self._listener.forget(who)

    async def _look(self, who: object, names: list[str]) -> tuple[bool, int | None]:
        await self._client.connected()
        # Heard before it looks: both go over one connection, in this order, so that no bell falls between the two.
        self._listener.want(who, names)
        takable, due_in = await self._client.call("look", (names,), rows.LOOK)
        return takable, None if due_in is None else self._timers.now() + ceil(due_in)

    async def stats(self) -> Stats:
        found: list[rows.StatsRow] = await self._client.call("stats", (), rows.STATS)
        return Stats({row.name: rows.stats(row) for row in found})

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        found = await self._client.call("read", (name,), rows.DOCUMENTS)
        return rows.document(found[0]) if found else None

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
        return [rows.document(row) for row in await self._client.call("documents", (prefix,), rows.DOCUMENTS)]

    # -- for people

    async def find(self, id: int) -> JobInfo | None:
        inputs.check_id(id)
        return rows.found(await self._client.call("find", (id,), rows.FOUND))

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        inputs.check_browse(queue, state, after, limit)
        args = (queue, rows.STATE_NUMBERS[state], after, limit)
        return [rows.info(queue, row) for row in await self._client.call("browse", args, rows.JOBS)]

    async def remove(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        removed: int = await self._client.once("remove", (ids,), rows.INT)
        return removed

    async def revive(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        revived: int = await self._client.once("revive", (ids,), rows.INT)
        return revived

    async def pause(self, queue: str, until: int | None = None) -> None:
        inputs.check_pause(queue, until)
        await self._client.call("pause", (queue, until), rows.FLAG)

    async def resume(self, queue: str) -> None:
        check_queue(queue)
        await self._client.call("resume", (queue,), rows.FLAG)

    async def purge(self, queue: str, state: State) -> int:
        inputs.check_browse(queue, state, None, 0)
        purged, last, more = 0, None, True
        while more:
            args = (queue, rows.STATE_NUMBERS[state], last, _PURGE_AT_ONCE)
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
