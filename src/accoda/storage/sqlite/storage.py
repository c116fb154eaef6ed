"""`Store` on one SQLite file. Each verb is a step of the modules beside this one; the writer commits them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from accoda.clock import Clock
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
from accoda.storage.holding import is_held_here
from accoda.storage.sqlite import counts, inspector
from accoda.storage.sqlite import documents as papers
from accoda.storage.sqlite import jobs as steps
from accoda.storage.sqlite import peek as looks
from accoda.storage.sqlite import place as places
from accoda.storage.sqlite.lookout import Lookout
from accoda.storage.sqlite.writer import Writer


class SqliteStorage(Closing):
    """Safe to share between threads and event loops; other processes open the file themselves."""

    def __init__(self, connection: apsw.Connection, path: Path, clock: Clock, *, durable: bool = True) -> None:
        self._clock = clock
        self._writer = Writer(connection, path, clock, durable)

    async def close(self) -> None:
        await self._writer.close()

    # -- the hot path

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        inputs.check_jobs(jobs)
        return await self._writer.run(steps.enqueue, jobs)

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        inputs.check_take(queue, count, lease, max_cost)
        return await self._writer.run(
            steps.take, queue, count, lease, max_cost, clean(worker),
            lasts=not is_held_here(), undo=steps.give_back_unseen,
        )  # fmt: skip

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        inputs.check_outcomes(outcomes)
        return await self._writer.run(steps.settle, outcomes)

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        inputs.check_leases(leases, lease)
        return await self._writer.run(steps.extend, leases, lease, lasts=not is_held_here())

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        inputs.check_ranks(ranks)
        return await self._writer.run(steps.rerank, ranks)

    async def waiters(self, lease: Lease) -> list[bytes]:
        inputs.check_leases((lease,), 1.0)
        return await self._writer.run(steps.waiters, lease, writes=False)

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        inputs.check_peek(queue, key, after)
        seen = await self._writer.run(looks.peek_only, queue, key, after, writes=False)
        return await self._writer.run(looks.peek, queue, key, after, lasts=False) if seen is None else seen

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        inputs.check_drop(queue, id, waiters)
        return await self._writer.run(looks.drop, queue, id, waiters)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        inputs.check_wait(queues, timeout)
        deadline = self._clock.now() + round(timeout * 1000)
        lookout = Lookout(queues)
        try:
            if await self._writer.look_out(lookout):
                return True
            if self._clock.now() >= deadline:
                return False
            cancel = self._clock.call_at(deadline, lambda: lookout.end(False))
            try:
                return await lookout.future
            finally:
                cancel()
        finally:
            lookout.leave()

    async def stats(self) -> Stats:
        return await self._writer.run(counts.stats, lasts=False)

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        return await self._writer.run(papers.read, name, writes=False)

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        inputs.check_write(name, value, version, ttl)
        return await self._writer.run(papers.write, name, value, version, ttl)

    async def documents(self, prefix: str) -> list[Document]:
        inputs.check_prefix(prefix)
        return await self._writer.run(papers.documents, prefix, writes=False)

    # -- for people

    async def find(self, id: int) -> JobInfo | None:
        inputs.check_id(id)
        return await self._writer.run(inspector.find, id, lasts=False)

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        inputs.check_browse(queue, state, after, limit)
        return await self._writer.run(inspector.browse, queue, state, after, limit, lasts=False)

    async def place(self, id: int, most: int = 1000) -> Place | None:
        inputs.check_place(id, most)
        done, seen = await self._writer.run(places.place_only, id, most, writes=False)
        return seen if done else await self._writer.run(places.place, id, most, lasts=False)

    async def remove(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        return await self._writer.run(inspector.remove, ids)

    async def revive(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        return await self._writer.run(inspector.revive, ids)

    async def start_now(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        return await self._writer.run(inspector.start_now, ids)

    async def pause(self, queue: str, until: int | None = None) -> None:
        inputs.check_pause(queue, until)
        await self._writer.run(inspector.pause, queue, until)

    async def resume(self, queue: str) -> None:
        check_queue(queue)
        await self._writer.run(inspector.resume, queue)

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        inputs.check_purge(queue, state, before, limit)
        return await self._writer.run(inspector.purge, queue, state, before, limit)
