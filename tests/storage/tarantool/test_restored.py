"""A Tarantool that was put back from a copy of its snapshots and logs."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer
from tests.storage import restored

from accoda import open_storage

Check = Callable[[str, restored.Restore], Awaitable[None]]


@pytest_asyncio.fixture
async def server() -> AsyncIterator[TarantoolServer]:
    with need(TarantoolServer) as server:
        yield server


@pytest.mark.parametrize("check", [restored.old_leases_are_refused, restored.a_busy_worker_runs_all_that_came_after])
async def test_the_leases_of_before_are_over(server: TarantoolServer, check: Check) -> None:
    await (await open_storage(server.url)).close()  # installs the application
    backup = server.copy()

    async def restore() -> None:
        server.put_back(backup)

    await check(server.url, restore)
