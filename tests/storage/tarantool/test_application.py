"""The application in the server: which accounts may install and use it, and what its version means."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer, administer

from accoda import ById, Done, NewJob, Rerank, open_storage
from accoda.errors import SchemaMismatch, StorageError
from accoda.model import AHEAD_AT_MOST, NEWCOMER, TURN, Lanes
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.tarantool import application
from accoda.storage.tarantool.address import address_of
from accoda.storage.tarantool.errors import ServerError
from accoda.storage.tarantool.open import connect

GRANT = "box.schema.user.grant('worker', 'execute', 'role', 'accoda', {if_not_exists = true}) return 0"
REVOKE = "box.schema.user.revoke('worker', 'execute', 'role', 'accoda', {if_exists = true}) return 0"
GRANT_ALL_CALLS = "box.schema.user.grant('worker', 'execute', 'universe') return 0"
REVOKE_ALL_CALLS = "box.schema.user.revoke('worker', 'execute', 'universe') return 0"
SET_VERSION = "box.space.accoda_app:update(1, {{'=', 'version', %d}, {'+', 'stamp', 1}}) return 0"
RELOAD = "box.space.accoda_app:update(1, {{'+', 'stamp', 1}}) return 0"
LUA = sorted((Path(application.__file__).parent / "lua" / "verbs").glob("*.lua"))


@pytest.fixture(scope="module")
def server() -> Iterator[TarantoolServer]:
    with need(lambda: TarantoolServer()) as server:
        yield server


async def test_without_the_application_the_error_says_how_to_install_it(server: TarantoolServer) -> None:
    # A user that may call nothing is not told what is there.
    with pytest.raises(StorageError, match=r"does not let user.*not installed, or.*lacks its role.*tarantool\.md"):
        await open_storage(server.worker_url)
    await administer(server.url, GRANT_ALL_CALLS)
    try:
        with pytest.raises(SchemaMismatch, match=r"no Accoda application.*'worker' may not install.*tarantool\.md"):
            await open_storage(server.worker_url)
    finally:
        await administer(server.url, REVOKE_ALL_CALLS)
    with pytest.raises(SchemaMismatch, match="has no Accoda application"):
        await open_storage(server.url + "?install=no")


async def test_many_clients_that_install_at_once_install_it_once(server: TarantoolServer) -> None:
    stores = await asyncio.gather(*(open_storage(server.url) for _ in range(5)))
    await asyncio.gather(*(store.enqueue([NewJob("q")]) for store in stores))
    assert (await stores[0].stats()).queues["q"].ready == 5
    assert await administer(server.url, "return box.space.accoda_app:get(1).stamp") == 1
    for store in stores:
        await store.close()


async def test_a_user_without_the_role_is_told_how_to_get_it(server: TarantoolServer) -> None:
    await (await open_storage(server.url)).close()
    await administer(server.url, REVOKE)
    with pytest.raises(StorageError, match=r"box\.schema\.user\.grant\('worker', 'execute', 'role', 'accoda'\)"):
        await open_storage(server.worker_url)


async def test_a_user_with_only_the_role_can_call_every_verb_and_nothing_else(server: TarantoolServer) -> None:
    await (await open_storage(server.url)).close()
    await administer(server.url, GRANT)
    async with await open_storage(server.worker_url) as store:
        waiting = asyncio.create_task(store.wait(["w"], 60))
        await store.stats()
        (answer,) = await store.enqueue([NewJob("w", b"\xff", key="k", waiter=b"w")])
        assert await waiting
        (job,) = await store.take("w", 1)
        assert (job.id, job.data) == (answer.id, b"\xff")
        assert (await store.look(ById(job.id), waiters_after=0)).waiters == (b"w",)
        assert await store.extend([job.lease], 60) == []
        assert await store.settle([Done(job.lease, then=[NewJob("w")])]) == []
        await store.set_lanes("w", Lanes(limit=1))
        assert (await store.lanes("w")).rules == Lanes(limit=1)
        await store.pause("w", None)
        assert (await store.stats()).queues["w"].paused
        await store.pause("w", 0)
        assert await store.write("doc", b"1") == 1
        assert [(document.name, await store.read(document.name)) for document in await store.documents("")]
        assert await store.change([Rerank(info.id, 1.0) for info in await store.browse("w", "ready")]) == 1
        assert await store.purge("w", "ready") == 1
    connection = await connect(address_of(urlsplit(server.worker_url)))
    for script in ("return box.space.accoda_jobs:len()", "return box.space.accoda_jobs:select()"):
        with pytest.raises(ServerError, match="denied"):
            await connection.eval(script, ())
    connection.close()


async def test_an_older_application_is_upgraded_by_an_account_that_may_install(server: TarantoolServer) -> None:
    await (await open_storage(server.url)).close()
    await administer(server.url, GRANT)
    await administer(server.url, SET_VERSION % (application.VERSION - 1))
    with pytest.raises(SchemaMismatch, match="may not install it"):
        await open_storage(server.worker_url)
    with pytest.raises(SchemaMismatch, match="older than"):
        await open_storage(server.worker_url + "?install=no")
    await (await open_storage(server.url)).close()
    await (await open_storage(server.worker_url)).close()


async def test_a_newer_application_is_left_alone(server: TarantoolServer) -> None:
    await (await open_storage(server.url)).close()
    await administer(server.url, SET_VERSION % (application.VERSION + 1))
    try:
        for url in (server.url, server.worker_url):
            with pytest.raises(SchemaMismatch, match=r"newer than.*upgrade Accoda"):
                await open_storage(url)
    finally:
        await administer(server.url, SET_VERSION % application.VERSION)
        await (await open_storage(server.url)).close()


async def test_an_upgrade_happens_under_workers_that_run_and_wait(server: TarantoolServer) -> None:
    async with await open_storage(server.url) as store:
        sleeping = asyncio.create_task(store.wait(["u"], 60))
        await store.enqueue([NewJob("v")])
        (job,) = await store.take("v", 1)
        await administer(server.url, RELOAD)  # a new stamp: the sources are loaded again
        assert await store.settle([Done(job.lease, then=[NewJob("u")])]) == []
        assert await asyncio.wait_for(sleeping, 10)


def test_the_application_has_the_bounds_of_the_protocol() -> None:
    sources = dict(application.parts())
    assert f"app.DUE_AT_ONCE = {DUE_AT_ONCE} " in sources["shared/1_transaction.lua"]
    assert f"AHEAD_AT_MOST = {AHEAD_AT_MOST} " in sources["verbs/look.lua"]
    assert "TURN, NEWCOMER = 2 ^ -40, 1 - 2 ^ -10 " in sources["shared/8_lane_rules.lua"]
    assert (TURN, NEWCOMER) == (2**-40, 1 - 2**-10)


@pytest.mark.parametrize("file", LUA, ids=lambda file: file.stem)
def test_the_header_of_a_verb_names_its_arguments_and_its_answer(file: Path) -> None:
    text = file.read_text()
    header = text[: text.index("local app")]
    assert "-- arguments: now" in header
    assert "-- answer: " in header
    body = re.search(rf"app\.verbs\.{file.stem} = (?:app\.\w+\()?function\((.*?)\)", text)
    body = body or re.search(rf"local function {file.stem}\((.*?)\)", text)
    assert body is not None
    told = header[header.index("-- arguments:") : header.index("-- answer:")].lower().replace("_", " ")
    for name in body[1].split(", "):
        assert name in ("tx", "_", "") or name.replace("_", " ") in told, f"{name} is not in the header"
