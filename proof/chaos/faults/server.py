"""The server dies or is restarted, and comes back after a while."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from proof.chaos.faults.model import Target
from proof.servers.process import Process


@dataclass
class ServerKill:
    """kill -9, and a start on the same files after a random time of at most `longest` seconds."""

    target: Target
    longest: float = 2.0
    name: str = "server kill"

    async def strike(self, rng: random.Random) -> None:
        assert self.target.server is not None
        await down_and_up(self.target, self.target.server, rng.uniform(0.0, self.longest), kill=True)


@dataclass
class ServerRestart:
    """A clean stop, and a start."""

    target: Target
    longest: float = 0.5
    name: str = "server restart"

    async def strike(self, rng: random.Random) -> None:
        assert self.target.server is not None
        await down_and_up(self.target, self.target.server, rng.uniform(0.0, self.longest), kill=False)


async def down_and_up(target: Target, server: Process, away_for: float, *, kill: bool) -> None:
    """End a server and start it again. It is up again in any case, also after a cancellation."""
    target.note("server down", server=target.kind, port=server.port, how="kill" if kill else "stop")
    await asyncio.to_thread(server.kill if kill else server.stop)
    try:
        await asyncio.sleep(away_for)
    finally:
        await asyncio.to_thread(server.start)
        target.note("server up", server=target.kind, port=server.port)
