"""From a `sqlite:///` URL to a storage."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import SplitResult, unquote

from accoda.clock import Clock, SystemClock
from accoda.errors import InvalidInput
from accoda.storage.common.urls import options
from accoda.storage.sqlite.clock_steps import HostClock
from accoda.storage.sqlite.connection import DURABILITY, connect
from accoda.storage.sqlite.storage import SqliteStorage


async def open_sqlite(parts: SplitResult, clock: Clock) -> SqliteStorage:
    chosen = options(parts, durability=DURABILITY)
    path = file_of(parts)
    connection = await asyncio.to_thread(connect, path)
    if type(clock) is SystemClock:
        clock = HostClock()
    return SqliteStorage(connection, path, clock, durable=chosen["durability"] == "full")


def file_of(parts: SplitResult) -> Path:
    """sqlite:///jobs.db is beside you, sqlite:////var/lib/jobs.db is absolute."""
    name = unquote(parts.path[1:])
    if parts.netloc or not name:
        raise InvalidInput("url", "name a file: sqlite:///jobs.db, or sqlite:////var/lib/jobs.db for an absolute path")
    if name == ":memory:":
        raise InvalidInput("url", "sqlite has no :memory: here; use memory://")
    return Path(name)
