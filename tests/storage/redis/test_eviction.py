"""A Redis whose eviction policy is changed while clients run says nothing by itself; the clients do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer

from accoda import NewJob, open_storage
from accoda.storage.redis import eviction
from accoda.storage.redis.keys import slot_of
from accoda.storage.redis.storage import RedisStorage


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with need(lambda: RedisServer("none", "--maxmemory", "100mb")) as server:
        yield server


async def opened(url: str) -> RedisStorage:
    store = await open_storage(url)
    assert isinstance(store, RedisStorage)
    return store


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStorage]:
    set_policy(server, "noeviction")
    async with await opened(server.url) as store:
        yield store


def set_policy(server: RedisServer, policy: str) -> None:
    assert server.ask("CONFIG", "SET", "maxmemory-policy", policy) == "OK"


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [each.levelno for each in caplog.records if each.name == "accoda.storage.redis"]


async def test_a_policy_that_drops_jobs_is_an_error_in_the_log_once_until_it_changes(
    server: RedisServer, store: RedisStorage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await store.eviction.run_once()
    assert levels(caplog) == [], "all is well"
    set_policy(server, "allkeys-lru")
    await store.eviction.run_once()
    await store.eviction.run_once()
    assert levels(caplog) == [logging.ERROR]
    assert f"127.0.0.1:{server.port}" in caplog.text
    assert "CONFIG SET maxmemory-policy noeviction" in caplog.text
    set_policy(server, "noeviction")
    await store.eviction.run_once()
    set_policy(server, "allkeys-random")
    await store.eviction.run_once()
    assert levels(caplog) == [logging.ERROR, logging.INFO, logging.ERROR]


async def test_an_idle_client_looks_by_itself(
    server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "LOOK_EVERY", 0.01)
    set_policy(server, "noeviction")
    async with asyncio.timeout(20), await opened(server.url):
        set_policy(server, "allkeys-lfu")
        while logging.ERROR not in levels(caplog):
            await asyncio.sleep(0.005)


async def test_a_policy_that_was_told_at_the_opening_is_not_told_again(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    set_policy(server, "volatile-lru")
    async with await opened(server.url) as store:
        assert levels(caplog) == [logging.WARNING]
        await store.eviction.run_once()
        assert levels(caplog) == [logging.WARNING]


async def test_a_user_who_may_not_ask_hears_nothing(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    set_policy(server, "noeviction")
    server.ask("ACL", "SETUSER", "shy", "on", ">secret", "~*", "&*", "+@all")
    async with await opened(server.url.replace("redis://", "redis://shy:secret@")) as store:
        server.ask("ACL", "SETUSER", "shy", "-info")
        set_policy(server, "allkeys-lru")
        await store.eviction.run_once()
        assert levels(caplog) == []
        await store.enqueue([NewJob("q")])


async def test_a_server_that_is_away_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with need(RedisServer) as server:
        async with asyncio.timeout(20), await opened(server.url) as store:
            server.kill()
            await store.eviction.run_once()
            assert levels(caplog) == []


async def test_nothing_is_left_of_it_when_the_store_is_closed(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "LOOK_EVERY", 0.0)
    set_policy(server, "noeviction")
    store = await opened(server.url)
    await store.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert store.eviction._timer is not None and store.eviction._timer.cancelled()


async def test_in_a_cluster_the_node_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with need(ClusterSet) as servers:
        async with await opened(servers.url) as store:
            await store.enqueue([NewJob("q")])
            owner = servers.owner(slot_of("q"))
            owner.ask("CONFIG", "SET", "maxmemory", "100mb")
            set_policy(owner, "allkeys-lru")
            await store.eviction.run_once()
            assert levels(caplog) == [logging.ERROR]
            assert f"127.0.0.1:{owner.port}" in caplog.text
