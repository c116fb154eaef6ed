"""Servers behind a proxy, on a disk that can fail: one of each kind for all tests here."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from proof.chaos.faults import Target
from proof.chaos.faults.targets import start_target
from proof.servers.pytest import need

from accoda import open_storage
from accoda.storage.protocol import Store
from accoda.storage.redis.topology import Access

_queues = itertools.count()
SERVERS = ("redis", "postgres", "tarantool")


@pytest.fixture(scope="session")
def targets() -> Iterator[Callable[[str], Target]]:
    """Give a target of this kind, started on first use."""
    started: dict[str, Target] = {}
    with ExitStack() as stack:

        def target_of(kind: str) -> Target:
            if kind not in started:
                started[kind] = need(lambda: start_target(kind, stack))
            return started[kind]

        yield target_of


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest, targets: Callable[[str], Target]) -> Target:
    """Each server in turn."""
    return targets(request.param)


@pytest.fixture
def disk_target(target: Target) -> Target:
    return with_disk(target)


@pytest.fixture
def with_own_disk(targets: Callable[[str], Target]) -> Callable[[str], Target]:
    return lambda kind: with_disk(targets(kind))


def with_disk(target: Target) -> Target:
    if target.disk is None:
        reason = "disk faults need Linux and a C compiler"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return target


@pytest_asyncio.fixture
async def store(target: Target) -> AsyncIterator[Store]:
    """A storage through the proxy."""
    async with await open_storage(target.url) as opened:
        yield opened


@pytest.fixture
def queue() -> str:
    """A queue for this test alone: the stores are shared."""
    return f"work{next(_queues)}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storages that are opened after this give a silent server up within two seconds, not half a minute and more."""
    monkeypatch.setattr("accoda.storage.redis.open.Access", partial(Access, timeout=0.3, silence=0.3))
    monkeypatch.setattr("accoda.storage.redis.wakeups.CONFIRM_FOR", 0.3)
    monkeypatch.setattr("accoda.storage.postgres.client.SILENCE", 0.3)
    monkeypatch.setattr("accoda.storage.postgres.client.RECONNECT_FOR", 0.5)
    monkeypatch.setattr("accoda.storage.tarantool.client.SILENCE", 0.3)
    monkeypatch.setattr("accoda.storage.tarantool.client.HANDSHAKE_PATIENCE", 0.3)
    monkeypatch.setattr("accoda.storage.tarantool.client.PATIENCE", 0.5)
