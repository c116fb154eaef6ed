"""What a fault is, and what it strikes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proof.proxy import Proxy
from proof.servers.disk import Disk
from proof.servers.process import Process
from proof.servers.redis import ClusterSet, SentinelSet

KINDS = ("sqlite", "redis", "redis-sentinel", "redis-cluster", "postgres", "tarantool")


class Note(Protocol):
    """Told of what happens outside the store: `note("server down", server="redis")`."""

    def __call__(self, kind: str, **fields: object) -> None: ...


class Fault(Protocol):
    """One kind of trouble. `strike` causes it, waits its length, undoes it, and notes the beginning and the end."""

    @property
    def name(self) -> str: ...

    async def strike(self, rng: random.Random) -> None: ...


def silent(kind: str, **fields: object) -> None:
    """Notes nothing."""


@dataclass
class Target:
    """The storage under test, and the handles by which faults get hold of it."""

    kind: str  # one of KINDS
    url: str  # what workers open: the way through the proxy where there is one
    note: Note = silent
    server: Process | None = None  # the one server, where there is one
    group: SentinelSet | ClusterSet | None = None  # several servers as one
    proxy: Proxy | None = None  # between the workers and the server
    disk: Disk | None = None  # makes the disk of the server (for SQLite: of the workers) fail; None where it cannot
    environment: Mapping[str, str] = field(default_factory=dict)  # what workers need beside their own, for `disk`

    @property
    def servers(self) -> Sequence[Process]:
        if self.group is not None:
            return self.group.all
        return [self.server] if self.server is not None else []
