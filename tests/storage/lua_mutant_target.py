"""The suite on storages whose Lua is changed as `ACCODA_LUA_MUTANTS` says. Run by test_lua_mutants.py only.

Each test runs on the storage as it should be, and on the mutants that it is said to catch. For the tests of a Cluster
this is a plugin that changes the scripts for them, and no more.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio

import accoda.storage.redis.storage
from accoda import open_storage
from accoda.storage.redis import scripts
from accoda.storage.tarantool import application
from accoda.testing.conformance import *  # noqa: F403
from accoda.testing.servers.redis import RedisServer
from accoda.testing.servers.tarantool import TarantoolServer
from accoda.testing.world import ManualWorld, World

STORAGE, MUTANTS = json.loads(os.environ.get("ACCODA_LUA_MUTANTS", '["redis", {}]'))
PACKAGE = accoda.storage.redis.__name__


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is not None and "changed_lua" in metafunc.fixturenames:
        test = f"{metafunc.cls.__name__}::{metafunc.function.__name__}"
        caught = [name for name, (*_, caught_by) in MUTANTS.items() if caught_by == test]
        metafunc.parametrize("changed_lua", ["", *caught], indirect=True)


@pytest.fixture(autouse=True)
def changed_lua(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lua that is changed for one test. Without a mutant it is as it should be."""
    request.node.user_properties.append(("mutant", request.param))  # for the report
    if not request.param:
        yield
        return
    file, old, new, _ = MUTANTS[request.param]

    def changed(name: str, text: str) -> str:
        if name == file and old not in text:
            raise ValueError(f"{file} no longer has {old!r}: change this mutant with it")
        return text.replace(old, new) if name == file else text

    if STORAGE == "tarantool":
        parts = tuple((name, changed(name, text)) for name, text in application.parts())
        monkeypatch.setattr(application, "parts", lambda: parts)
        yield
    else:
        yield from with_scripts(changed)


def with_scripts(changed: Callable[[str, str], str]) -> Iterator[None]:
    """The storage's modules have loaded their scripts when they were imported: they load them again, and afterwards."""
    original = scripts._read
    scripts._read = lambda path: changed(path, original(path))
    try:
        load_again()
        yield
    finally:
        scripts._read = original
        load_again()


def load_again() -> None:
    scripts.script.cache_clear()
    for module in [module for name, module in sys.modules.items() if name.startswith(PACKAGE)]:
        for name, value in list(vars(module).items()):
            if isinstance(value, scripts.Script):
                setattr(module, name, scripts.script(value.name))


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    """On a server of its own: it keeps what was loaded into it."""
    with RedisServer() if STORAGE == "redis" else TarantoolServer() as server:
        yield ManualWorld(lambda clock: open_storage(server.url, clock=clock), url=server.url, shared=True)
