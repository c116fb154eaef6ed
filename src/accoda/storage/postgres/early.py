"""Takes for an idle worker that are answered before the disk has them.

A take waits for the disk for fear of a crash of the server that makes it forget the lease: the job is ready again, the
next taker gets the same token, which is made of id and attempts, and whoever had it before could settle the job against
him. But to run a job does nothing with its lease. So here a worker of this process (`accoda.storage.holding`) gets its
jobs at once, and runs them while the disk is at it. What uses their leases (settle, extend, give_back) waits until it
is known that the server cannot forget them any more.

It is known by an answer to a commit that waits for the disk, made later and by the same connection. Its record comes
after that of the take, and a disk never has the later without the earlier. And a server that crashed in between, and
forgot the take, has lost all its connections by that: one that answers leads to a server that forgot nothing. (Nothing
may stand in between that keeps our connection and changes its own; docs/postgres.md says that no pooler may.) Mostly
the settle is that commit. Where it does not come within `SOON`, an empty one is made.

If the connection breaks before that, the leases count as lost, whether they are or not: the jobs come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from accoda.model import Job, Lease
from accoda.storage.postgres import rows
from accoda.storage.postgres.client import Client
from accoda.storage.postgres.connector import Connection
from accoda.storage.postgres.errors import DRIVER, UNDONE, translate

SOON = 0.01
"""Seconds after which a lease is made to last that has not been used."""
_MOST_LOST = 10_000  # that are remembered; there are as many as jobs in hand of idle workers at a crash


class _Hold:
    """Leases of one take, and its connection, which nobody else uses before they last."""

    __slots__ = ("connection", "ending", "leases", "timer")

    def __init__(self, connection: Connection, leases: list[Lease], timer: asyncio.TimerHandle) -> None:
        self.connection = connection
        self.leases = leases
        self.timer = timer
        self.ending: asyncio.Future[None] | None = None  # done when it is known what became of them


class Early:
    """Belongs to the client's event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._holds: dict[Lease, _Hold] = {}
        self._lost: dict[Lease, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # so that none is collected while it runs

    def __bool__(self) -> bool:
        """Whether there are leases of which `lost` has to be asked."""
        return bool(self._holds or self._lost)

    async def take(self, queue: str, args: tuple[object, ...]) -> list[Job]:
        connection = await self._client.pool.acquire(None, "take_early")
        try:
            found = await connection.fetch(self._client.queries["take_early"], *args)
        except BaseException:
            self._client.pool.release(connection)
            raise
        jobs = rows.jobs_taken(queue, found)
        if jobs:
            leases = [job.lease for job in jobs]
            timer = self._client.loop.call_later(SOON, self._end_of, leases[0])
            self._holds.update(dict.fromkeys(leases, _Hold(connection, leases, timer)))
        else:
            self._client.pool.release(connection)
        return jobs

    def holds(self, leases: Sequence[Lease]) -> bool:
        """Whether these are just those of one take, so that `settle` can end it."""
        hold = self._holds.get(leases[0])
        return (
            hold is not None
            and hold.ending is None
            and len(hold.leases) == len(leases) == len({lease for lease in leases if self._holds.get(lease) is hold})
        )

    async def settle(self, one: Lease, query: str, args: tuple[object, ...]) -> Any:
        """The only value of a statement that settles all that one take `holds`."""
        hold = self._holds[one]
        self._begin(hold)
        try:
            while True:
                try:
                    return (await hold.connection.fetch(self._client.queries[query], *args))[0][0]
                except UNDONE:
                    await asyncio.sleep(0)
        except BaseException as error:  # whether it was carried out is not known; also where we were cancelled
            self._lose(hold)
            raise translate(error, unsure=True) from error
        finally:
            self._end(hold)

    async def lost(self, leases: Iterable[Lease]) -> set[Lease]:
        """Which of them the server may have forgotten. The others last when this returns."""
        for hold in {id(hold): hold for lease in leases if (hold := self._holds.get(lease)) is not None}.values():
            await asyncio.shield(self._end_of(hold.leases[0]))
        return {lease for lease in leases if lease in self._lost}

    async def close(self) -> None:
        """Make all leases last. The connections are free then."""
        await self.lost([*self._holds])

    def _end_of(self, lease: Lease) -> asyncio.Future[None]:
        hold = self._holds[lease]
        if hold.ending is not None:
            return hold.ending
        ending = self._begin(hold)
        task = self._client.loop.create_task(self._make_last(hold))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ending

    async def _make_last(self, hold: _Hold) -> None:
        try:
            await hold.connection.fetch(self._client.queries["last"])
        except BaseException as error:
            self._lose(hold)
            if not isinstance(error, DRIVER):
                raise
        finally:
            self._end(hold)

    def _begin(self, hold: _Hold) -> asyncio.Future[None]:
        hold.timer.cancel()
        hold.ending = self._client.loop.create_future()
        return hold.ending

    def _lose(self, hold: _Hold) -> None:
        self._lost.update(dict.fromkeys(hold.leases))
        while len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]

    def _end(self, hold: _Hold) -> None:
        for lease in hold.leases:
            del self._holds[lease]
        self._client.pool.release(hold.connection)
        if hold.ending is not None and not hold.ending.done():
            hold.ending.set_result(None)
