"""From a URL to a storage: options, credentials, TLS, rights, and servers that cannot be used."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from proof.servers.process import find_program
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from tests.storage.redis.verbs import Q, use_every_verb

from accoda import NewJob, open_storage
from accoda.errors import InvalidInput, SchemaMismatch, StorageError, StorageUnavailable
from accoda.storage.protocol import Store


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url) as store:
        yield store


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://localhost/x", "database"),
        ("redis://localhost/0?prefx=a", "has no option 'prefx'"),
        ("redis://localhost/0?partitions=2", "has no option 'partitions'"),
        ("redis://localhost/0?prefix=a{b", "prefix"),
        ("redis://localhost/0?timeout=soon", "timeout"),
        ("redis://localhost/0?wait_replicas=-1", "wait_replicas"),
        ("redis://a,b/0", "one host"),
        ("redis://host:port/0", "host:port"),
        ("rediss://localhost/0?ca=/nowhere.pem", "ca"),
        ("redis+sentinel://localhost", "name the master"),
        ("redis+cluster://localhost/1", "one database"),
        ("redis+cluster://localhost?partitions=0", "partitions"),
        ("redis+cluster://localhost?tls=maybe", "tls"),
    ],
)
async def test_a_url_that_cannot_be_used_says_why(url: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        await open_storage(url)


async def test_a_single_server_as_a_cluster_says_how_to_open_it(server: RedisServer) -> None:
    with pytest.raises(StorageError, match="redis://"):
        await open_storage(f"redis+cluster://127.0.0.1:{server.port}?timeout=1")


async def test_a_store_of_a_newer_accoda_is_left_alone(server: RedisServer) -> None:
    server.ask("FLUSHALL")
    server.ask("SET", "accoda:layout", "99")
    with pytest.raises(SchemaMismatch, match="upgrade"):
        await open_storage(server.url)


async def test_prefixes_and_databases_are_stores_of_their_own(store: Store, server: RedisServer) -> None:
    await store.enqueue([NewJob(Q)])
    for url in (f"{server.url}?prefix=other", server.url[:-1] + "1"):
        async with await open_storage(url) as other:
            assert (await other.stats()).queues == {}


async def test_a_password_is_asked_for_and_checked() -> None:
    users = "user jobs on >s3cr%t ~* &* +@all"
    with need(RedisServer) as server:
        server.ask("ACL", "SETUSER", *users.split()[1:])
        server.ask("CONFIG", "SET", "requirepass", "other")
        place = f"127.0.0.1:{server.port}/0"
        async with await open_storage(f"redis://jobs:s3cr%25t@{place}") as store:
            await store.enqueue([NewJob(Q)])
        async with await open_storage(f"redis://:other@{place}") as store:
            assert (await store.stats()).queues[Q].ready == 1
        with pytest.raises(StorageError, match="password"):
            await open_storage(f"redis://jobs:wrong@{place}")
        with pytest.raises(StorageError, match="NOAUTH"):
            await open_storage(f"redis://{place}")


async def test_over_tls(tmp_path: Path) -> None:
    openssl = need(lambda: find_program("openssl"))
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    with need(RedisServer) as server:
        port = server.port
        for name, value in (("cert-file", cert), ("key-file", key), ("ca-cert-file", cert)):
            server.ask("CONFIG", "SET", f"tls-{name}", str(value))
        server.ask("CONFIG", "SET", "tls-auth-clients", "no")
        assert server.ask("CONFIG", "SET", "port", 0, "tls-port", port) == "OK"
        async with await open_storage(f"rediss://127.0.0.1:{port}/0?ca={cert}") as store:
            await store.enqueue([NewJob(Q)])
            assert await store.wait([Q], 5)
        with pytest.raises(StorageUnavailable):
            await open_storage(f"rediss://127.0.0.1:{port}/0?timeout=0.2")


async def test_the_rights_that_the_docs_name_are_enough(server: RedisServer) -> None:
    docs = Path(__file__).parents[3] / "docs" / "redis.md"
    (line,) = [line for line in docs.read_text().splitlines() if line.startswith("ACL SETUSER jobs")]
    assert server.ask(*line.split()) == "OK"
    server.ask("FLUSHALL")
    async with await open_storage(server.url.replace("redis://", "redis://jobs:secret@")) as store:
        await use_every_verb(store)
        waiting = asyncio.create_task(store.wait(["else"], 10))
        await store.stats()
        await store.enqueue([NewJob("else")])
        assert await waiting


async def test_one_that_would_drop_jobs_silently_is_refused() -> None:
    options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with need(lambda: RedisServer("none", *options)) as server, pytest.raises(StorageError, match="noeviction"):
        await open_storage(server.url)


async def test_a_layout_that_is_no_number_is_named(server: RedisServer) -> None:
    server.ask("FLUSHALL")
    server.ask("SET", "accoda:layout", "mine")
    with pytest.raises(SchemaMismatch, match="prefix"):
        await open_storage(server.url)
    server.ask("FLUSHALL")
    server.ask("SADD", "accoda:layout", "mine")
    with pytest.raises(StorageError, match="another type"):
        await open_storage(server.url)
    server.ask("FLUSHALL")
