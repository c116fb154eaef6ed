"""The suite on a storage whose Lua is changed as `ACCODA_LUA_MUTANT` says. Run by test_lua_mutants.py only.

For the tests of a Cluster it is a plugin that changes the scripts before they are loaded, and no more.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from accoda import open_storage
from accoda.storage.redis import scripts
from accoda.storage.tarantool import application
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.servers.redis import RedisServer
from accoda.testing.servers.tarantool import TarantoolServer, empty
from accoda.testing.world import ManualWorld, World

STORAGE, FILE, OLD, NEW = json.loads(os.environ.get("ACCODA_LUA_MUTANT", '["redis", "", "", ""]'))


def changed(name: str, text: str) -> str:
    if name != FILE:
        return text
    if OLD not in text:
        raise ValueError(f"{FILE} no longer has {OLD!r}: change this mutant with it")
    return text.replace(OLD, NEW)


if STORAGE != "tarantool":
    # The storage's modules load their scripts when they are imported, which is later: when a store is opened.
    original = scripts._read
    scripts._read = lambda path: changed(path, original(path))
else:
    parts = tuple((name, changed(name, text)) for name, text in application.parts())
    application.parts = lambda: parts  # type: ignore[assignment]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer | TarantoolServer]:
    with RedisServer() if STORAGE == "redis" else TarantoolServer() as server:
        yield server


@pytest_asyncio.fixture
async def world(server: RedisServer | TarantoolServer) -> AsyncIterator[World]:
    async with make_world(server) as world:
        yield world


@asynccontextmanager
async def make_world(server: RedisServer | TarantoolServer) -> AsyncIterator[World]:
    if isinstance(server, RedisServer):
        server.ask("FLUSHALL")
    else:
        async with await open_storage(server.url):
            await empty(server.url)
    yield ManualWorld(lambda clock: open_storage(server.url, clock=clock), url=server.url, shared=True)
