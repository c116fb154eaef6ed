"""Callers are killed between a write and its commit, and relays in their step: a job is there if its order is, once.

`make chaos-transactions` does the same with many more kills.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from proof.chaos.transactions import kills, relays
from proof.chaos.transactions.__main__ import show
from proof.chaos.transactions.cases import BY_POSTGRES, CASES, Case, Servers
from proof.chaos.transactions.processes import Forks, open_forks
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.redis import RedisServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forks(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Forks]:
    async with open_forks(tmp_path_factory.mktemp("forks")) as forks:
        yield forks


@pytest.fixture(scope="module")
def servers(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with need(RedisServer) as redis:
        yield Servers(server, redis, tmp_path_factory.mktemp("places"))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_killed_caller_leaves_a_job_where_it_committed_and_none_elsewhere(
    case: Case, forks: Forks, servers: Servers
) -> None:
    found = await kills.run(case, servers.new_place(case), forks, 3)
    assert found.ok, show([found])
    assert found.kills == 3


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", relays.CASES, ids=str)
async def test_a_killed_relay_leaves_no_job_behind_and_sends_none_twice(
    case: Case, forks: Forks, servers: Servers
) -> None:
    found = await relays.run(case, servers.new_place(case), forks, 3, jobs=300)
    assert found.ok, show([found])
    assert (found.kills, found.disordered) == (3, 0)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", [Case("psycopg", "postgresql"), Case("asyncpg", BY_POSTGRES)], ids=str)
async def test_a_job_that_is_enqueued_beside_the_transaction_is_noticed(
    case: Case, forks: Forks, servers: Servers
) -> None:
    found = await kills.run(case, servers.new_place(case), forks, 3, broken=True)
    assert not found.ok
    assert found.extra
