"""Moves jobs from an outbox to the store, each exactly once.

A system job of every worker. One of them relays at a time: the holder of the lease of the outbox's relay job.

    take the relay job ──► delete the rows that it names ──► read the next rows
        ──► Done(lease, then=[the next relay job, which names these rows; their jobs])

The jobs of the rows, and the note that these rows were sent, are stored in one step, and only the holder of the lease
can take that step. So a row is sent once: before the step nothing has happened; after it, whoever holds the next relay
job deletes the rows that it names before it reads any. A holder that lost its lease is refused, wherever it stopped. It
may still delete the rows that its own relay job names, but those were sent, and no other row ever has their ids.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import suppress

from msgspec import MsgspecError, msgpack

from accoda.errors import AccodaError, StorageClosed, StorageError, StorageUnavailable
from accoda.model import Done, Job, NewJob, Retry
from accoda.queue_access import FOLLOW_UPS
from accoda.storage.common.reconnecting import Backoff, limited_patience
from accoda.storage.protocol import Store
from accoda.transactions.open import open_table
from accoda.transactions.outbox import Outbox, read_jobs
from accoda.transactions.table import POLL, Row, Table

QUEUE = "accoda.outbox"
"""What the queue of a relay job begins with: each outbox has one of its own, under the outbox's name."""
KEY = "relay"
LEASE = 10.0
"""Seconds after which another worker goes on if the one that relays is killed."""
ROWS = 200
"""Rows that are sent in one step, unless they have more than a thousand jobs."""
ASIDE_FOR = 60.0
"""Seconds for which a row that the store refuses is left alone."""
LEAVING = 2.0
"""Seconds that a worker which ends gives the store to take the relay job back."""

log = logging.getLogger("accoda.outbox")


class Relay:
    """A system job: any number of relays, in any number of processes, share the work."""

    queue = QUEUE

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._queue: str | None = None
        self._aside: dict[str, float] = {}
        """Rows that cannot be sent, and until when, by the event loop's clock: they must not hold up the others."""
        self._one_by_one = False

    async def run_once(self, store: Store) -> int:
        """Send what is in the outbox now, unless another worker relays; how many rows."""
        job = await self._take(store, self._queue or await self._find_queue())
        return 0 if job is None else await self._relay(store, job, waits=False)

    async def run(self, store: Store) -> None:
        """Send rows as they come, until cancelled."""
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                job = await self._take(store, self._queue or await self._find_queue())
                if job is None:
                    await asyncio.sleep(LEASE / 2)  # another worker relays
                else:
                    await self._relay(store, job, waits=True)
                backoff.reset()
            except StorageClosed:
                raise
            except StorageError as error:
                self._queue = None
                log.warning("nothing is relayed from %r, trying again: %s", self._outbox, error)
                await backoff.nap()

    async def _find_queue(self) -> str:
        async with open_table(self._outbox) as table:
            self._queue = f"{QUEUE}.{table.name}"
            return self._queue

    async def _take(self, store: Store, queue: str) -> Job | None:
        """The relay job; None: another worker has it."""
        jobs = await store.take(queue, 1, lease=LEASE, worker="outbox")
        if not jobs:
            (told,) = await store.enqueue([NewJob(queue, _encode([]), key=KEY)])
            jobs = await store.take(queue, 1, lease=LEASE, worker="outbox") if told.what == "created" else []
        return jobs[0] if jobs else None

    async def _relay(self, store: Store, job: Job, *, waits: bool) -> int:
        """Send rows for as long as the relay job is ours, or until there are none; how many."""
        held: Job | None = job
        sent = 0
        try:
            async with open_table(self._outbox) as table:
                if job.queue != f"{QUEUE}.{table.name}":
                    raise StorageUnavailable("it was made anew, and is opened again")
                while held is not None:
                    if names := _names(held):
                        await table.delete(names)
                    rows = await self._next_rows(store, table, held, waits=waits)
                    if rows is None:
                        held = None
                    elif not rows:
                        break
                    elif (count := await self._send(store, held, rows)) is not None:
                        sent, held = sent + count, None
                        held = await self._take(store, job.queue)
        finally:
            if held is not None:
                await _give_back(store, held)
        return sent

    async def _next_rows(self, store: Store, table: Table, job: Job, *, waits: bool) -> list[Row] | None:
        """The rows to send next, after a wait for them if `waits`. None: the relay job is no longer ours."""
        loop = asyncio.get_running_loop()
        extended = loop.time()
        while True:
            self._aside = {id: until for id, until in self._aside.items() if until > loop.time()}
            rows = await table.read(self._aside, 1 if self._one_by_one else ROWS)
            if rows or not waits:
                return rows
            self._one_by_one = False
            await table.wait(POLL)
            if loop.time() - extended > LEASE / 4:
                extended = loop.time()
                if await store.extend([job.lease], LEASE):
                    return None

    async def _send(self, store: Store, job: Job, rows: Sequence[Row]) -> int | None:
        """Take the step; how many rows were sent, none if another worker has the relay job by now.

        None: the store refuses what is in them, so nothing was changed and the relay job is still ours.
        """
        ids, jobs = self._decoded(rows)
        if not ids:
            return None
        try:
            refused = await store.settle([Done(job.lease, [NewJob(job.queue, _encode(ids), key=KEY), *jobs])])
        except (StorageUnavailable, StorageClosed):
            raise
        except AccodaError as error:
            if len(ids) == 1:
                self._set_aside(ids[0], ASIDE_FOR, error)
            self._one_by_one = True  # until the one that it refuses is found
            return None
        return 0 if refused else len(ids)

    def _decoded(self, rows: Sequence[Row]) -> tuple[list[str], list[NewJob]]:
        """The ids of the rows that are sent together, and their jobs. A row alone may have more than the usual."""
        ids: list[str] = []
        jobs: list[NewJob] = []
        for row in rows:
            try:
                found = read_jobs(row.jobs, row.age)
            except (ValueError, MsgspecError) as error:
                self._set_aside(row.id, math.inf, error)
                continue
            if ids and len(jobs) + len(found) > FOLLOW_UPS:
                break
            ids.append(row.id)
            jobs += found
        return ids, jobs

    def _set_aside(self, id: str, seconds: float, error: Exception) -> None:
        self._aside[id] = asyncio.get_running_loop().time() + seconds
        log.error("row %s of %r cannot be relayed and stays where it is: %s", id, self._outbox, error)


async def _give_back(store: Store, job: Job) -> None:
    """Let another worker have the relay job at once. If the store is away, its lease ends by itself."""
    with suppress(StorageError), limited_patience(LEAVING):
        await store.settle([Retry(job.lease, counts=False)])


def _encode(ids: Sequence[str]) -> bytes:
    return msgpack.encode(ids)


def _names(job: Job) -> list[str]:
    """The rows that a relay job names."""
    try:
        return msgpack.decode(job.data, type=list[str])
    except MsgspecError:
        return []
