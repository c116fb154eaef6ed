"""Faults of processes: a name and `strike`, as the faults of servers and networks in `proof.chaos.faults`."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import apsw

from proof.chaos.faults import Note
from proof.chaos.fleet import Fleet, Member
from proof.chaos.orders import POINTS, Order, Point

PATIENCE = 4.0
"""Seconds that an order has to be carried out; then a plain kill takes its place."""
AT_WORK = 0.6
"""Seconds of age from which on a process that has called the store is taken to be at work."""


@dataclass
class Kill:
    """kill -9 of a worker, at whatever it does."""

    fleet: Fleet
    note: Note
    name: str = "kill"

    async def strike(self, rng: random.Random) -> None:
        await kill(self.note, await find(self.fleet, rng, self.fleet.workers), "at random")


@dataclass
class KillAtPoint:
    """kill -9 of a worker at a named point, by its own hand."""

    fleet: Fleet
    note: Note
    point: Point

    @property
    def name(self) -> str:
        return f"kill {self.point}"

    async def strike(self, rng: random.Random) -> None:
        victim = await find(self.fleet, rng, self.fleet.workers)
        if victim is None or victim.process is None:
            return
        process = victim.process
        victim.order(Order("die", self.point))
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:  # it had nothing to do, or the store is away
            if victim.process is process:
                await kill(self.note, victim, "at random")


@dataclass
class KillProducer:
    """kill -9 of a producer: what became of its last batch is not known."""

    fleet: Fleet
    note: Note
    name: str = "kill producer"

    async def strike(self, rng: random.Random) -> None:
        victim = await find(self.fleet, rng, self.fleet.producers)
        if victim is not None:
            self.note("producer kill", client=victim.client)
            victim.send(signal.SIGKILL)


@dataclass
class KillAll:
    """kill -9 of all processes at once, while they commit. For SQLite, this is what a server's death is."""

    fleet: Fleet
    note: Note
    name: str = "server kill"

    async def strike(self, rng: random.Random) -> None:
        await find(self.fleet, rng, self.fleet.workers)
        await asyncio.sleep(rng.uniform(0.0, 0.2))
        self.note("server down", server="sqlite", how="kill")
        kill_all(self.fleet, self.note)
        await asyncio.sleep(rng.uniform(0.1, 0.5))
        self.note("server up", server="sqlite")


@dataclass
class LongLock:
    """Another program has a lock on the SQLite file for longer than leases last. The workers live through it."""

    path: Path
    note: Note
    lease: float
    name: str = "outage"

    async def strike(self, rng: random.Random) -> None:
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(10_000)
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
        self.note("outage", server="sqlite")
        try:
            await asyncio.sleep(self.lease * rng.uniform(1.5, 3.0))
        finally:
            connection.execute("ROLLBACK")
            connection.close()
            self.note("outage over", server="sqlite")


@dataclass
class PutBack:
    """The SQLite file is replaced by a copy from the beginning. Its processes have to be stopped for that, as the page
    on SQLite says."""

    fleet: Fleet
    note: Note
    path: Path
    backup: Path
    reopen: Callable[[Callable[[], None]], Awaitable[None]]
    name: str = "restore"

    async def strike(self, rng: random.Random) -> None:
        victims = [member.process for member in self.fleet.members if member.process is not None and member.alive]
        self.note("restoring", server="sqlite")
        kill_all(self.fleet, self.note)
        for process in victims:
            await process.wait()
        await self.reopen(self._replace)
        self.note("restored", server="sqlite")

    def _replace(self) -> None:
        """One step of the event loop: no process is started meanwhile."""
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(self.backup, self.path)


@dataclass
class Stop:
    """SIGSTOP of a worker in its handler, for longer than its leases last; then SIGCONT."""

    fleet: Fleet
    note: Note
    lease: float
    name: str = "stop"

    async def strike(self, rng: random.Random) -> None:
        victim = await find(self.fleet, rng, self.fleet.workers)
        if victim is None or victim.process is None:
            return
        pid = victim.process.pid
        victim.order(Order("stop"))
        if not await until(lambda: stopped(pid)):
            return
        self.note("stopped", client=victim.client)
        await asyncio.sleep(self.lease * rng.uniform(1.3, 2.0))
        victim.send(signal.SIGCONT)


@dataclass
class HoldGil:
    """A handler that holds the GIL for longer than a lease: even the keeper of leases stands still."""

    fleet: Fleet
    note: Note
    lease: float
    name: str = "gil"

    async def strike(self, rng: random.Random) -> None:
        victim = await find(self.fleet, rng, self.fleet.workers)
        if victim is not None:
            seconds = self.lease * rng.uniform(1.3, 2.0)
            self.note("gil ordered", client=victim.client)
            victim.order(Order("gil", seconds=seconds))
            await asyncio.sleep(seconds)


@dataclass
class Poison:
    """A job that kills its process whenever it runs, among good ones."""

    enqueue: Callable[[], Awaitable[None]]
    note: Note
    name: str = "poison"

    async def strike(self, rng: random.Random) -> None:
        self.note("poison enqueued")
        await self.enqueue()


def points(fleet: Fleet, note: Note) -> list[KillAtPoint]:
    return [KillAtPoint(fleet, note, point) for point in POINTS]


async def find(fleet: Fleet, rng: random.Random, among: list[Member]) -> Member | None:
    """A victim that is at work; waits a while for one."""
    end = time.monotonic() + PATIENCE
    while (victim := fleet.victim(rng, among, age=AT_WORK)) is None and time.monotonic() < end:
        await asyncio.sleep(0.05)
    return victim


def kill_all(fleet: Fleet, note: Note) -> None:
    """kill -9 of every process."""
    for member in fleet.members:
        if member.alive:
            note("all killed", client=member.client)
            member.send(signal.SIGKILL)


async def kill(note: Note, victim: Member | None, how: str) -> None:
    if victim is not None and victim.process is not None and victim.alive:
        # The note comes first: a reader of the log sees that from here on the process may be dead.
        note("kill", client=victim.client, how=how)
        process = victim.process
        victim.send(signal.SIGKILL)
        await process.wait()


async def until(true: Callable[[], bool], patience: float = PATIENCE) -> bool:
    end = time.monotonic() + patience
    while not true():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


def stopped(pid: int) -> bool:
    """Whether our child has stopped since we last asked."""
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None
    except ChildProcessError:  # it has ended meanwhile
        return False
