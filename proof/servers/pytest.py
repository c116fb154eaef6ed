"""How tests ask for a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from proof.servers.postgres import PostgresServer
from proof.servers.process import ServerMissing
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

S = TypeVar("S")

SERVERS: dict[str, Callable[[], Any]] = {
    "redis": RedisServer,
    "postgres": lambda: PostgresServer(durable=False),
    "tarantool": TarantoolServer,
}
KINDS = ("memory", "sqlite", *SERVERS)


def need(start: Callable[[], S]) -> S:
    """Start a server. One that is not installed skips the test at home and fails it in CI."""
    try:
        return start()
    except ServerMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@contextmanager
def store_of(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty store of one of the `KINDS`."""
    if kind not in SERVERS:
        yield "memory://" if kind == "memory" else f"sqlite:///{folder}/jobs.db"
        return
    server = need(lambda: SERVERS[kind]().start())
    try:
        yield server.url
    finally:
        server.stop()
