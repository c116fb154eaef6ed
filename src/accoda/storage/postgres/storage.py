"""`Store` in a PostgreSQL schema. Each verb is one call of a function there: one round trip, one transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar, cast

from accoda.clock import Clock, SystemClock
from accoda.errors import AccodaError, VersionConflict
from accoda.model import (
    Document,
    Done,
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
    Retry,
    State,
    Stats,
    check_document_name,
    check_queue,
    clean,
    follow_ups,
)
from accoda.storage import inputs
from accoda.storage.closing import Closing
from accoda.storage.density import Look, Stretch
from accoda.storage.postgres import rows
from accoda.storage.postgres.bell import Bell, news_of
from accoda.storage.postgres.calls import Calls
from accoda.storage.postgres.client import Client
from accoda.storage.postgres.foreign import run_in
from accoda.storage.postgres.kept import Kept
from accoda.storage.postgres.upkeep import Upkeep
from accoda.storage.postgres.watch import Watch
from accoda.storage.signal import Signal
from accoda.storage.standing import stand

T = TypeVar("T")

UNDO_PATIENCE = 1.0  # seconds that a cancelled take waits until its jobs are back in the line
_AFTER_ALL = "\U0010ffff"  # not printable, so no name has it; in UTF-8 it sorts after every other character


class PostgresStorage(Closing):
    """Safe to share between threads and event loops; calls are carried out in the loop in which it was opened.

    `clock` is for tests: then the server takes its moment for the present one. None: the server's own clock.

    What happens when the connection breaks before an answer came (`repeat` below):
    repeated, because twice does what once does: take (jobs that the lost answer named come back when their lease ends),
    extend, rerank, pause, resume, and whatever only looks. Not repeated, but `StorageUnavailable`, because twice would
    be too much or the answer wrong: enqueue, write, drop, remove, revive, start_now, purge; and settle, which its
    caller may safely repeat: "lost" may then mean what was applied the first time.
    """

    def __init__(self, client: Client, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock
        self._timer = clock or SystemClock()
        self._signal = Signal()
        self._bell = Bell(client, self._signal)
        self._calls = Calls(client, self._bell, self._at)
        self._upkeep = Upkeep(client)
        self._undoing: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Let calls under way finish, then let go of everything. Who is cancelled here lets go at once."""
        try:
            if self._client.reachable:
                await self._client.at_home(self._close)
            else:
                self._client.hang_up()
        finally:
            self._signal.ring()  # who waits finds it closed

    async def _close(self) -> None:
        if self._closing is None:
            self._client.refuse()  # first, so that nothing new begins in what is closed below
            self._closing = asyncio.create_task(self._end())
        try:
            await asyncio.wait({self._closing})  # one end for all who ask for it
        except asyncio.CancelledError:
            self._client.hang_up()
            self._closing.cancel()
            raise
        if not self._closing.cancelled():
            self._closing.result()

    async def _end(self) -> None:
        try:
            await self._bell.close()
            await self._upkeep.close()
            await self._client.close()
        finally:
            self._client.hang_up()

    def _at(self) -> int | None:
        """The present moment where a test decides it; otherwise the server's clock does."""
        return None if self._clock is None else self._clock.now()

    # -- the hot path

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Enqueued]:
        """Store all of them or none. With `connection`, in the transaction that is open there: see docs/postgres.md."""
        inputs.check_jobs(jobs)
        self._client.check()
        if not jobs:
            return []
        if connection is not None:
            columns = rows.columns(jobs)
            query = self._client.queries["enqueue_apart"]
            return rows.enqueued(*await run_in(connection, query, (self._at(), *columns, sorted(set(columns[0])))))
        return await self._client.at_home(self._calls.enqueue, jobs)

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        inputs.check_take(queue, count, lease, max_cost)
        self._client.check()
        share = queue, round(lease * 1000), clean(worker)
        if self._client.is_at_hand:
            taking = Kept(self._calls.take(share, count, max_cost))
        else:  # it begins with a wait that is limited in time, which only a task of its own can outlive
            taking = Kept(_in_task(self._client.at_home(self._calls.take, share, count, max_cost)))
        try:
            return await taking
        except asyncio.CancelledError:
            # The caller went away, but the server may be at it: what it hands out must not lie there for a whole lease.
            if taking.rest is not None:
                undoing = asyncio.ensure_future(self._undo(taking.rest))
                self._undoing.add(undoing)
                undoing.add_done_callback(self._undoing.discard)
                await asyncio.wait({undoing}, timeout=UNDO_PATIENCE)
            raise

    async def _undo(self, taking: asyncio.Future[list[Job]]) -> None:
        # An error is dropped: the jobs then come back when their lease ends.
        with contextlib.suppress(AccodaError):
            if jobs := await taking:
                jobs = sorted(jobs, key=lambda job: job.id)
                ids, tokens = [job.id for job in jobs], [job.attempts for job in jobs]
                await self._client.fetch("give_back", jobs[0].queue, ids, tokens, repeat=True)
                self._bell.tell({jobs[0].queue})

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        inputs.check_outcomes(outcomes)
        self._client.check()
        if not outcomes:
            return []
        self._upkeep.note(len(outcomes))
        if rows.is_plain(outcomes):
            return await self._client.at_home(self._calls.finish, cast(Sequence[Done], outcomes))
        args = rows.outcome_columns(outcomes)
        leases = rows.lease_columns(outcome.lease for outcome in outcomes)
        verdicts = await self._client.value("settle", self._at(), *leases, *args, repeat=False)
        self._bell.tell({outcome.lease.queue for outcome in outcomes if type(outcome) is Retry})
        self._bell.tell(news_of(job for outcome in outcomes for job in follow_ups(outcome)))
        return rows.refused(outcomes, verdicts)

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        inputs.check_leases(leases, lease)
        args = (*rows.lease_columns(leases), round(lease * 1000))
        lost = await self._client.value("extend", self._at(), *args, repeat=True)
        self._bell.tell({held.queue for held in leases})  # an end may have come nearer
        return [Refused(leases[place - 1], "lost") for place in lost]

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        inputs.check_ranks(ranks)
        held = rows.lease_columns(Lease(rank.queue, rank.id, 0) for rank in ranks)
        args = (held[0], held[2], [float(rank.rank) for rank in ranks], [rows.counted(rank.waiters) for rank in ranks])
        return int(await self._client.value("rerank", self._at(), *args, repeat=True))

    async def waiters(self, lease: Lease) -> list[bytes]:
        inputs.check_leases((lease,), 1.0)
        ((id,), (token,), (queue,)) = rows.lease_columns((lease,))
        return list(await self._client.value("waiters", self._at(), id, token, queue, repeat=True))

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        inputs.check_peek(queue, key, after)
        (found,) = await self._client.fetch("peek", self._at(), queue, key, rows.counted(after), repeat=True)
        return rows.peek(found)

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        inputs.check_drop(queue, id, waiters)
        args = (queue, rows.storable(id), rows.counted(waiters))
        return bool(await self._client.value("drop", self._at(), *args, repeat=False))

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        inputs.check_wait(queues, timeout)
        watch = Watch(self._client, self._bell, self._calls, self._timer, queues)
        return await self._signal.wait(self._timer, queues, timeout, watch.look)

    async def stats(self) -> Stats:
        return rows.stats(await self._client.fetch("stats", self._at(), repeat=True))

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        found = await self._client.fetch("read", self._at(), name, repeat=True)
        return Document(name, *found[0]) if found else None

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        inputs.check_write(name, value, version, ttl)
        args = (self._at(), name, value, version, rows.to_ms(ttl))
        ((new, found),) = await self._client.fetch("write", *args, repeat=False)
        if new is None:
            raise VersionConflict(name, version or 0, found)
        return int(new)

    async def documents(self, prefix: str) -> list[Document]:
        inputs.check_prefix(prefix)
        found = await self._client.fetch("documents", self._at(), prefix, prefix + _AFTER_ALL, repeat=True)
        return [Document(*row) for row in found]

    # -- for people

    async def find(self, id: int) -> JobInfo | None:
        inputs.check_id(id)
        found = await self._client.fetch("find", self._at(), rows.storable(id), repeat=True)
        return rows.job_info(found[0]) if found else None

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        inputs.check_browse(queue, state, after, limit)
        args = (queue, rows.STATE_NUMBERS[state], -1 if after is None else after, limit)
        return [rows.job_info(row) for row in await self._client.fetch("browse", self._at(), *args, repeat=True)]

    async def place(self, id: int, most: int = 1000) -> Place | None:
        inputs.check_place(id, most)
        (found,) = await self._client.fetch("place", self._at(), rows.storable(id), most, repeat=True)
        survey = rows.survey(found)
        if survey is None:
            return None

        async def look(wanted: list[Look]) -> list[Stretch]:
            columns = rows.look_columns(wanted)
            return rows.stretches(await self._client.fetch("stretches", survey.job.queue, *columns, repeat=True))

        return await stand(survey, most, look)

    async def remove(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        wanted = [rows.storable(id) for id in ids]
        return int(await self._client.value("remove", self._at(), wanted, repeat=False))

    async def revive(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        wanted = [rows.storable(id) for id in ids]
        queues = await self._client.value("revive", self._at(), wanted, repeat=False)
        self._bell.tell(set(queues))
        return len(queues)

    async def start_now(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        wanted = [rows.storable(id) for id in ids]
        queues = await self._client.value("start_now", self._at(), wanted, repeat=False)
        self._bell.tell(set(queues))
        return len(queues)

    async def pause(self, queue: str, until: int | None = None) -> None:
        inputs.check_pause(queue, until)
        await self._client.fetch("pause", queue, until, repeat=True)
        self._bell.tell({queue})  # the end of the pause is a new moment to wake at

    async def resume(self, queue: str) -> None:
        check_queue(queue)
        await self._client.fetch("resume", queue, repeat=True)
        self._bell.tell({queue})

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        inputs.check_purge(queue, state, before, limit)
        args = (queue, rows.STATE_NUMBERS[state], before, limit)
        return int(await self._client.value("purge", self._at(), *args, repeat=False))


async def _in_task(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.ensure_future(work)
