"""A service whose store refuses connections says so soon, with a time to come again; and what it does not know."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from accoda import App, NewJob, StorageUnavailable
from accoda.http.options import ServiceOptions
from accoda.http.problems import from_error
from accoda.storage.open import open_storage
from accoda.storage.patience import at_most, patience_of
from accoda.testing.proxy import Proxy
from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.process import wait_until
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import RedisServer
from accoda.testing.servers.tarantool import TarantoolServer
from accoda.testing.service import ServiceRunner

SERVERS: dict[str, Any] = {"redis": RedisServer, "postgres": PostgresServer, "tarantool": TarantoolServer}
FAR_LESS_THAN_THE_STORAGES_OWN = 8.0
"""Seconds; the storages wait for 10 and 30. A loaded machine may be slow, and is not the question here."""


@pytest.fixture(params=sorted(SERVERS))
def away(request: pytest.FixtureRequest) -> Iterator[tuple[Proxy, str]]:
    """A proxy before a server, and the URL that leads there."""
    server = need(lambda: SERVERS[request.param]().start())
    try:
        with Proxy(server.port) as proxy:
            yield proxy, server.url_at(proxy.port)
    finally:
        server.close()


def test_refused_connections_are_503_long_before_the_storage_gives_up(away: tuple[Proxy, str]) -> None:
    proxy, url = away
    with ServiceRunner(App(url), ServiceOptions(errands=True, patience=0.3)) as service:
        stored = service.post("/api/v1/jobs", {"queue": "emails"}).json()["id"]
        with proxy.weather(cut=True):
            begun = time.monotonic()
            for method, path in (("GET", f"/api/v1/jobs/{stored}"), ("POST", "/api/v1/jobs"), ("GET", "/health/ready")):
                reply = service.request(method, path, {"queue": "emails"} if method == "POST" else None)
                assert reply.status == 503, path
                assert path == "/health/ready" or reply.headers["retry-after"] == "5"
            assert time.monotonic() - begun < FAR_LESS_THAN_THE_STORAGES_OWN
        wait_until(lambda: service.get("/health/ready").status == 200, lambda: "it does not go on by itself")
        assert service.get(f"/api/v1/jobs/{stored}").status == 200


def test_a_service_does_not_wait_long_for_a_store_that_was_never_there() -> None:
    server = need(lambda: RedisServer().start())
    server.close()
    begun = time.monotonic()
    with (
        pytest.raises(RuntimeError, match="did not start"),
        ServiceRunner(App(server.url), ServiceOptions(errands=False, patience=0.1)),
    ):
        pass
    assert time.monotonic() - begun < FAR_LESS_THAN_THE_STORAGES_OWN


async def test_others_still_wait_out_a_restart(away: tuple[Proxy, str]) -> None:
    proxy, url = away
    async with await open_storage(url) as store:
        with proxy.weather(cut=True):
            with at_most(0.05), pytest.raises(StorageUnavailable):
                await store.stats()
            patient = asyncio.create_task(store.enqueue([NewJob("emails")]))
            with at_most(0.05), pytest.raises(StorageUnavailable):
                await store.stats()
            assert not patient.done()
        await patient


async def test_who_has_less_time_keeps_to_it() -> None:
    assert patience_of(30.0) == 30.0
    with at_most(2.0):
        with at_most(5.0):
            assert patience_of(30.0) == 2.0
        assert await asyncio.create_task(_asked()) == 2.0
    assert patience_of(30.0) == 30.0


async def _asked() -> float:
    return patience_of(30.0)


def test_what_may_have_been_done_is_told_as_such() -> None:
    sure = from_error(StorageUnavailable("refused")).problem
    assert (sure.status, "not known" in sure.detail) == (503, False)
    unsure = from_error(StorageUnavailable("lost", unsure=True)).problem
    assert unsure.status == 503
    assert "not known whether this was done" in unsure.detail and "Idempotency-Key" in unsure.detail


async def test_a_call_whose_answer_is_lost_says_that_it_may_have_been_done() -> None:
    server = need(lambda: PostgresServer().start())
    try:
        with Proxy(server.port) as proxy:
            async with await open_storage(server.url_at(proxy.port)) as store:
                proxy.tear_next_reply(0)
                with pytest.raises(StorageUnavailable) as lost:
                    await store.enqueue([NewJob("emails")])
                assert lost.value.unsure
    finally:
        server.close()


async def test_who_has_no_time_does_not_wait_for_a_joined_call_of_somebody_who_has() -> None:
    server = need(lambda: RedisServer().start())
    try:
        with Proxy(server.port) as proxy:
            async with await open_storage(server.url_at(proxy.port)) as store:
                with proxy.weather(cut=True):
                    first, second = (asyncio.create_task(store.enqueue([NewJob("emails")])) for _ in range(2))
                    await asyncio.sleep(0)  # the first is on its way, and the second waits to go after it
                    with at_most(0.05), pytest.raises(StorageUnavailable) as away:
                        await store.enqueue([NewJob("emails")])
                    assert not away.value.unsure
                    assert not first.done() and not second.done()
                await asyncio.gather(first, second)
                assert (await store.stats()).queues["emails"].ready == 2
    finally:
        server.close()
