"""A service whose store refuses connections says so soon, with a time to come again; and what it does not know."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from proof.proxy import Proxy
from proof.servers.postgres import PostgresServer
from proof.servers.process import wait_until
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer
from proof.service import ServiceRunner

from accoda import App, NewJob, StorageUnavailable, migrate
from accoda.http.options import ServiceOptions
from accoda.http.problems import from_error
from accoda.storage.common.reconnecting import limited_patience, patience_of
from accoda.storage.open import open_storage

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
    asyncio.run(migrate(url))  # here, where nothing limits how long it takes
    with ServiceRunner(App(url), ServiceOptions(system_jobs=True, patience=1.0)) as service:
        stored = service.post("/api/v1/jobs", {"queue": "emails"}).json()["id"]
        with proxy.during(cut=True):
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
        ServiceRunner(App(server.url), ServiceOptions(system_jobs=False, patience=0.1)),
    ):
        pass
    assert time.monotonic() - begun < FAR_LESS_THAN_THE_STORAGES_OWN


async def test_others_still_wait_out_a_restart(away: tuple[Proxy, str]) -> None:
    proxy, url = away
    async with await open_storage(url) as store:
        with proxy.during(cut=True):
            with limited_patience(0.05), pytest.raises(StorageUnavailable):
                await store.stats()
            patient = asyncio.create_task(store.enqueue([NewJob("emails")]))
            with limited_patience(0.05), pytest.raises(StorageUnavailable):
                await store.stats()
            assert not patient.done()
        await patient


async def test_a_shorter_limit_of_patience_stays() -> None:
    assert patience_of(30.0) == 30.0
    with limited_patience(2.0):
        with limited_patience(5.0):
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
