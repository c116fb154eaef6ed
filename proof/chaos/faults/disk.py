"""The disk is full, slow, or says that it failed, for a while.

What the engines do then, with the settings of `targets.py`:

| engine | disk full | fsync fails |
| --- | --- | --- |
| Redis, `appendfsync always` | ends itself: it must not acknowledge what it cannot store | the same |
| PostgreSQL | refuses what needs space; ends itself where its log cannot grow | panics, recovers from its log |
| Tarantool | refuses the transaction, goes on | the same (its log is written with O_SYNC) |
| SQLite | refuses the transaction, goes on | the same |

A server that ended itself is started again when the disk is well, as its operator would do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from proof.chaos.faults.model import Target
from proof.servers.disk import Disk
from proof.servers.process import Process


@dataclass
class BadDisk:
    """`begin` makes it bad, for a random time of at most `longest` seconds."""

    target: Target
    name: str
    begin: Callable[[Disk], None]
    longest: float

    async def strike(self, rng: random.Random) -> None:
        disk, note = self.target.disk, self.target.note
        assert disk is not None
        note(self.name, server=self.target.kind)
        self.begin(disk)
        try:
            await asyncio.sleep(rng.uniform(self.longest / 10, self.longest))
        finally:
            disk.well()
            if self.target.server is not None:
                await self._revive(self.target.server)
            note(f"{self.name} over", server=self.target.kind)

    async def _revive(self, server: Process) -> None:
        """Start it again if it ended itself, or wait until it has recovered."""
        if server.is_alive and await asyncio.to_thread(server.is_up):
            return
        self.target.note("server down", server=self.target.kind, port=server.port, how=self.name)
        await asyncio.to_thread(server.recover)
        self.target.note("server up", server=self.target.kind, port=server.port)


def disk_faults(target: Target) -> list[BadDisk]:
    return [
        BadDisk(target, "disk full", Disk.full, 3.0),
        # Once: PostgreSQL recovers by itself then; while every fsync fails, it cannot start again.
        BadDisk(target, "fsync fails", lambda disk: disk.broken_sync(once=True), 1.0),
        BadDisk(target, "fsync slow", lambda disk: disk.slow_sync(0.2), 5.0),
    ]
