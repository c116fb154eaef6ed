"""`Store` on one SQLite file. Each verb is a step of the modules beside this one; the writer commits them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import apsw

from accoda.clock import Clock, MonotonicClock
from accoda.model import (
    Change,
    Cursor,
    Document,
    Enqueued,
    Job,
    JobInfo,
    Lanes,
    LanesInfo,
    Lease,
    Look,
    NewJob,
    Order,
    Outcome,
    Refused,
    State,
    Stats,
    Target,
    check_document_name,
    clean,
)
from accoda.storage import checks
from accoda.storage.common.closing import Closing
from accoda.storage.common.lease_durability import is_held_here
from accoda.storage.common.wakeups import WakeUps
from accoda.storage.sqlite import documents as document_steps
from accoda.storage.sqlite import inspector
from accoda.storage.sqlite import jobs as job_steps
from accoda.storage.sqlite import lanes as lane_steps
from accoda.storage.sqlite.clock_steps import HostClock
from accoda.storage.sqlite.watch import Watch, shared_file
from accoda.storage.sqlite.writer import Writer


class SqliteStorage(Closing):
    """Safe to share between threads and event loops; other processes open the file themselves."""

    def __init__(self, connection: apsw.Connection, path: Path, clock: Clock, *, durable: bool = True) -> None:
        self._host = clock if isinstance(clock, HostClock) else None
        # A wait is a length: it ends in time though the wall clock is set meanwhile.
        self._clock = clock if self._host is None else MonotonicClock()
        self._wakeups = WakeUps()
        self._watch = Watch([shared_file(path)], self._wakeups.wake)
        self._writer = Writer(connection, path, clock, self._wakeups, durable=durable)
        self._run = self._writer.run

    async def close(self) -> None:
        await self._writer.close()
        self._watch.close()
        self._wakeups.wake()  # those that sleep look, and hear that it is closed

    # -- the hot path

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        checks.check_jobs(jobs)
        return await self._run(job_steps.enqueue, jobs)

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        checks.check_take(queue, count, lease, max_cost)
        return await self._run(
            job_steps.take, queue, count, lease, max_cost, clean(worker),
            lasts=not is_held_here(), undo=job_steps.give_back_unseen,
        )  # fmt: skip

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        checks.check_outcomes(outcomes)
        return await self._run(job_steps.settle, outcomes)

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        checks.check_leases(leases, lease)
        return await self._run(job_steps.extend, leases, lease, lasts=not is_held_here())

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        checks.check_wait(queues, timeout)
        self._writer.check_open()

        async def check() -> tuple[bool, int | None]:
            takable, moment = await self._run(job_steps.takable, queues, writes=False)
            if moment is not None and self._host is not None:
                moment = cast(int, self._host.steady(moment))  # the clocks take fractions of a ms as well
            return takable, moment

        with self._watch.listening():
            return await self._wakeups.wait(self._clock, queues, timeout, check)

    async def stats(self) -> Stats:
        return await self._run(inspector.stats, lasts=False)

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        return await self._run(document_steps.read, name, writes=False)

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        checks.check_write(name, value, version, ttl)
        return await self._run(document_steps.write, name, value, version, ttl)

    async def documents(self, prefix: str) -> list[Document]:
        checks.check_prefix(prefix)
        return await self._run(document_steps.documents, prefix, writes=False)

    # -- for people

    async def look(self, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> Look:
        checks.check_look(target, waiters_after)
        seen = await self._run(inspector.look, target, waiters_after, ahead, writes=False)
        if seen is None:  # something is due, and to apply it is to write
            seen = await self._run(inspector.look, target, waiters_after, ahead, lasts=False)
        assert seen is not None
        return seen

    async def change(self, changes: Sequence[Change]) -> int:
        checks.check_changes(changes)
        return await self._run(inspector.change, changes)

    async def browse(
        self, queue: str, state: State, *, order: Order = "line", after: Cursor | None = None, limit: int = 100
    ) -> list[JobInfo]:
        checks.check_browse(queue, state, order, after, limit)
        return await self._run(inspector.browse, queue, state, order, after, limit, lasts=False)

    async def pause(self, queue: str, until: int | None) -> None:
        checks.check_pause(queue, until)
        await self._run(inspector.pause, queue, until)

    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        checks.check_set_lanes(queue, rules)
        queues = await self._run(lane_steps.set_lanes, queue, rules)
        while queues:
            queues = await self._run(lane_steps.go_on, queues)

    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        checks.check_lanes(queue, limit)
        return await self._run(inspector.lanes, queue, limit, writes=limit > 0, lasts=False)

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        checks.check_purge(queue, state, before, limit)
        return await self._run(inspector.purge, queue, state, before, limit)
