"""Storages to strike: a server behind a proxy, on a disk that can fail."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from proof.chaos.faults.model import KINDS, Note, Target, silent
from proof.proxy import Proxy
from proof.servers.disk import Disk
from proof.servers.postgres import PostgresServer
from proof.servers.process import ServerMissing
from proof.servers.redis import ClusterSet, RedisServer, SentinelSet
from proof.servers.tarantool import TarantoolServer

# With settings that promise to keep what they acknowledged through every fault that is listed here.
_SERVERS: dict[str, Callable[[Disk | None], RedisServer | PostgresServer | TarantoolServer]] = {
    "redis": lambda disk: RedisServer("always", disk=disk),
    "postgres": lambda disk: PostgresServer(disk=disk),
    "tarantool": lambda disk: TarantoolServer("fsync", disk=disk),
}


@asynccontextmanager
async def open_target(kind: str, note: Note = silent) -> AsyncIterator[Target]:
    """Start what a storage of this kind needs, and end it afterwards."""
    if kind not in KINDS:
        raise ValueError(f"there is no target {kind!r}; there are {', '.join(KINDS)}")
    with contextlib.ExitStack() as stack:
        yield await asyncio.to_thread(start_target, kind, stack, note)


def start_target(kind: str, stack: contextlib.ExitStack, note: Note = silent) -> Target:
    """Start what a storage of this kind needs; the stack ends it."""
    disk = _disk(stack)
    if kind == "sqlite":
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="accoda-chaos-")))
        return Target(
            kind,
            f"sqlite:///{folder / 'jobs.db'}",
            note,
            disk=disk,
            environment=disk.environment(folder) if disk is not None else {},
        )
    if kind in ("redis-sentinel", "redis-cluster"):
        # A replica must have confirmed a write before it is acknowledged: otherwise a fail-over may lose it.
        group: SentinelSet | ClusterSet = (
            SentinelSet(replicas=2) if kind == "redis-sentinel" else ClusterSet("everysec")
        )
        stack.enter_context(group)
        mark = "&" if "?" in group.url else "?"
        return Target(kind, f"{group.url}{mark}wait_replicas=1", note, group=group)
    server = _SERVERS[kind](disk)
    stack.enter_context(server)
    proxy = stack.enter_context(Proxy(server.port))
    return Target(kind, server.url_at(proxy.port), note, server=server, proxy=proxy, disk=disk)


def _disk(stack: contextlib.ExitStack) -> Disk | None:
    try:
        disk = Disk()
    except ServerMissing:  # no compiler: then its faults are not in the catalogue
        return None
    stack.callback(disk.close)
    return disk
