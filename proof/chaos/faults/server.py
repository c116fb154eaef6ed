"""The server dies, is restarted or does not answer, and comes back after a while; or it comes back older."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proof.chaos.faults.model import Target
from proof.servers.process import Process
from proof.servers.redis import ClusterSet, SentinelSet


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


@dataclass
class Outage:
    """All servers stand still (SIGSTOP) for longer than leases last, and go on. The workers live through it."""

    target: Target
    lease: float
    name: str = "outage"

    async def strike(self, rng: random.Random) -> None:
        servers, note = self.target.servers, self.target.note
        note("outage", server=self.target.kind)
        for server in servers:
            _send(server.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(self.lease * rng.uniform(1.5, 3.0))
        finally:
            for server in servers:
                _send(server.pid, signal.SIGCONT)
            note("outage over", server=self.target.kind)
            if self.target.group is not None:
                await asyncio.to_thread(_wait_for_sentinels, self.target.group)


@dataclass
class Restore:
    """The store comes back as it was at the beginning, without a job: ids come again. The workers live through it.

    One server is put back from a copy of its files; of several, the masters forget all that they have.
    """

    target: Target
    backup: Path | None
    name: str = "restore"

    async def strike(self, rng: random.Random) -> None:
        target = self.target
        target.note("restoring", server=target.kind)
        if target.server is not None:
            assert self.backup is not None
            await asyncio.to_thread(target.server.put_back, self.backup)
        elif target.group is not None:
            await asyncio.to_thread(self._empty, target.group)
        target.note("restored", server=target.kind)

    def _empty(self, group: SentinelSet | ClusterSet) -> None:
        """The replicas must have forgotten, too, before one of them may become the master."""
        group.wait_until_in_order()
        for master in group.current_masters():
            with socket.create_connection(("127.0.0.1", master.port), timeout=30) as connection:
                # WAIT is for what the same connection wrote.
                connection.sendall(b"FLUSHALL\r\nWAIT 1 20000\r\nWAIT 2 1000\r\n")
                answers = b""
                while answers.count(b"\r\n") < 3:
                    answers += connection.recv(4096)


def _wait_for_sentinels(group: SentinelSet | ClusterSet) -> None:
    """A Sentinel that stood still does nothing for half a minute ("tilt"): a master that died then would stay dead."""
    while any("sentinel_tilt:1" in str(server.ask("INFO", "sentinel")) for server in group.all):
        time.sleep(0.2)
    group.wait_until_in_order()


def _send(server: int, number: signal.Signals) -> None:
    """To a server and then to its children: those of PostgreSQL are not in its process group."""
    os.kill(server, number)
    for children in Path(f"/proc/{server}/task").glob("*/children"):
        for child in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), number)


async def down_and_up(target: Target, server: Process, away_for: float, *, kill: bool) -> None:
    """End a server and start it again. It is up again in any case, also after a cancellation."""
    target.note("server down", server=target.kind, port=server.port, how="kill" if kill else "stop")
    await asyncio.to_thread(server.kill if kill else server.stop)
    try:
        await asyncio.sleep(away_for)
    finally:
        await asyncio.to_thread(server.start)
        target.note("server up", server=target.kind, port=server.port)
