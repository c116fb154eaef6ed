"""The application in the server: who may install it, who may use it, and what a version says."""

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.msgpack import Decoder

from accoda import Bury, Done, ManualClock, NewJob, Retry, open_storage
from accoda.errors import InvalidInput, SchemaMismatch, StorageError
from accoda.storage.tarantool import application
from accoda.storage.tarantool.address import address_of
from accoda.storage.tarantool.connection import ServerError, connect
from accoda.storage.tarantool.rows import INT
from accoda.testing.servers.pytest import need
from accoda.testing.servers.tarantool import TarantoolServer, administer, empty

GRANT = "box.schema.user.grant('worker', 'execute', 'role', 'accoda', {if_not_exists = true}) return 0"
REVOKE = "box.schema.user.revoke('worker', 'execute', 'role', 'accoda', {if_exists = true}) return 0"
GRANT_ALL_CALLS = "box.schema.user.grant('worker', 'execute', 'universe') return 0"
REVOKE_ALL_CALLS = "box.schema.user.revoke('worker', 'execute', 'universe') return 0"
# As an application from before there were revisions.
SET_VERSION = (
    "local a = box.space.accoda_app:get(1) box.space.accoda_app:replace({1, %d, a.stamp + 1, a.parts}) return 0"
)
RELOAD = "box.space.accoda_app:update(1, {{'+', 'stamp', 1}}) return 0"
DROP_NEW_SPACES = "for _, name in ipairs({'ended', 'tombstones'}) do box.space['accoda_' .. name]:drop() end "
# What version 1 left behind: the format without the last two fields, and the version.
TO_VERSION_1 = """
    local jobs = box.space.accoda_jobs
    local fields = jobs:format()
    fields[20], fields[21] = nil, nil
    jobs:format(fields)
""" + SET_VERSION % 1  # fmt: skip
# What revision 3 was: no peek, no drop.
TO_REVISION_3 = """
    for _, name in ipairs({'accoda_peek', 'accoda_drop'}) do
        box.schema.func.drop(name)
    end
    local app, parts = box.space.accoda_app:get(1), {}
    for _, part in ipairs(app.parts) do
        if part[1] ~= 'verbs/peek.lua' and part[1] ~= 'verbs/drop.lua' then
            table.insert(parts, part)
        end
    end
    box.space.accoda_app:replace({1, app.version, app.stamp + 1, parts, 3}) return 0
"""
# What revision 4 was: no start_now.
TO_REVISION_4 = """
    box.schema.func.drop('accoda_start_now')
    local app, parts = box.space.accoda_app:get(1), {}
    for _, part in ipairs(app.parts) do
        if part[1] ~= 'verbs/start_now.lua' then
            table.insert(parts, part)
        end
    end
    box.space.accoda_app:replace({1, app.version, app.stamp + 1, parts, 4}) return 0
"""
# What revision 5 was: no place.
TO_REVISION_5 = """
    for _, name in ipairs({'accoda_place', 'accoda_stretches'}) do
        box.schema.func.drop(name)
    end
    local app, parts = box.space.accoda_app:get(1), {}
    for _, part in ipairs(app.parts) do
        if part[1] ~= 'verbs/place.lua' and part[1] ~= 'verbs/stretches.lua' then
            table.insert(parts, part)
        end
    end
    box.space.accoda_app:replace({1, app.version, app.stamp + 1, parts, 5}) return 0
"""
TUPLE_SIZES = "local s = {} for i, job in ipairs(box.space.accoda_jobs:select()) do s[i] = #job end return s"
LUA = sorted((Path(application.__file__).parent / "lua" / "verbs").glob("*.lua"))


@pytest.fixture(scope="module")
def server() -> Iterator[TarantoolServer]:
    with need(lambda: TarantoolServer()) as server:
        yield server


async def test_a_server_without_the_application_says_who_may_install_it(server: TarantoolServer) -> None:
    # Who may call nothing is not told what is there.
    with pytest.raises(StorageError, match=r"may not call.*not installed there, or.*lacks its role.*tarantool\.md"):
        await open_storage(server.worker_url)
    await administer(server.url, GRANT_ALL_CALLS)
    try:
        with pytest.raises(SchemaMismatch, match=r"no Accoda application.*'worker' may not install.*tarantool\.md"):
            await open_storage(server.worker_url)
    finally:
        await administer(server.url, REVOKE_ALL_CALLS)
    with pytest.raises(SchemaMismatch, match="has no Accoda application"):
        await open_storage(server.url + "?install=no")


async def test_many_who_install_at_once_install_it_once(server: TarantoolServer) -> None:
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


async def test_a_user_with_only_the_role_can_do_everything_but_nothing_else(server: TarantoolServer) -> None:
    await (await open_storage(server.url)).close()
    await administer(server.url, GRANT)
    async with await open_storage(server.worker_url) as store:
        waiting = asyncio.create_task(store.wait(["w"], 60))
        await store.stats()
        (answer,) = await store.enqueue([NewJob("w", b"\xff", key="k", waiter=b"w")])
        assert await waiting
        (job,) = await store.take("w", 1)
        assert (job.id, job.data) == (answer.id, b"\xff")
        assert await store.waiters(job.lease) == [b"w"]
        assert await store.settle([Done(job.lease, then=[NewJob("w")])]) == []
        await store.pause("w")
        assert (await store.stats()).queues["w"].paused
        await store.resume("w")
        assert await store.write("doc", b"1") == 1
    connection = await connect(address_of(urlsplit(server.worker_url)))
    for script in ("return box.space.accoda_jobs:len()", "return box.space.accoda_jobs:select()"):
        with pytest.raises(ServerError, match="denied"):
            await connection.eval(script, ())
    connection.close()


@pytest.mark.parametrize("url", ["worker:wrong", "nobody:secret", "admin:"])
async def test_a_wrong_user_or_password_is_said_to_be_so(server: TarantoolServer, url: str) -> None:
    with pytest.raises(StorageError, match="correct the user or password") as caught:
        await open_storage(f"tarantool://{url}@127.0.0.1:{server.port}")
    assert "wrong" not in str(caught.value).replace("wrong user", ""), "a password must not be shown"


async def test_an_older_application_is_upgraded_by_those_who_may(server: TarantoolServer) -> None:
    await (await open_storage(server.url)).close()
    await administer(server.url, GRANT)
    await administer(server.url, SET_VERSION % (application.VERSION - 1))
    with pytest.raises(SchemaMismatch, match="may not install it"):
        await open_storage(server.worker_url)
    with pytest.raises(SchemaMismatch, match="older than"):
        await open_storage(server.worker_url + "?install=no")
    await (await open_storage(server.url)).close()
    await (await open_storage(server.worker_url)).close()


async def test_the_jobs_of_version_1_are_read_with_zeros_and_count_from_there(server: TarantoolServer) -> None:
    async with await open_storage(server.url) as store:
        await empty(server.url)
        retried, buried, waiting = [answer.id for answer in await store.enqueue([NewJob("old") for _ in range(3)])]
        jobs = await store.take("old", 2)
        await store.settle([Retry(jobs[0].lease), Bury(jobs[1].lease, "broken")])
    await administer(server.url, TO_VERSION_1)
    assert await administer(server.url, TUPLE_SIZES) == [19, 19, 19]
    clock = ManualClock(int(time.time() * 1000))
    async with await open_storage(server.url, clock=clock) as store:
        assert await administer(server.url, "return box.space.accoda_jobs:format()[21].name") == "crashes"
        infos = [await store.find(id) for id in (retried, buried, waiting)]
        past = [(info.attempts, info.fresh_at, info.crashes) for info in infos if info]
        assert past == [(1, 0, 0), (0, 0, 0), (0, 0, 0)]
        assert await store.revive([buried]) == 1
        assert len(await store.take("old", 3, lease=5)) == 3
        clock.advance(5)
        told = {job.id: (job.attempts, job.fresh_at, job.crashes) for job in await store.take("old", 3)}
        assert told == {retried: (2, 0, 1), buried: (2, 1, 1), waiting: (1, 0, 1)}


async def test_an_ordinary_job_is_as_large_as_it_was_in_version_1(server: TarantoolServer) -> None:
    async with await open_storage(server.url) as store:
        await empty(server.url)
        replacing = NewJob("q", key="k", on_duplicate="replace")
        await store.enqueue([NewJob("q"), replacing, replacing])
        await store.settle([Retry(job.lease) for job in await store.take("q", 2)])
        await store.take("q", 1)
        assert await administer(server.url, TUPLE_SIZES) == [19, 19]


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


async def test_a_newer_revision_of_the_same_version_serves_older_clients(server: TarantoolServer) -> None:
    await (await open_storage(server.url)).close()
    connection = await connect(address_of(urlsplit(server.url)))
    assert await connection.call("version", (None,), INT) == application.VERSION == 2, "what they ask, and must hear"
    connection.close()
    # They know no revision, so theirs is never put in the place of a newer one.
    await administer(server.url, "box.space.accoda_app:update(1, {{'=', 5, 99}, {'+', 'stamp', 1}}) return 0")
    await (await open_storage(server.url)).close()
    assert await administer(server.url, "return box.space.accoda_app:get(1)[5]") == 99
    await administer(server.url, SET_VERSION % application.VERSION)
    await (await open_storage(server.url)).close()
    assert await administer(server.url, "return box.space.accoda_app:get(1)[5]") == application.REVISION


async def test_jobs_that_ended_before_an_upgrade_are_purged_by_age_too(server: TarantoolServer) -> None:
    clock = ManualClock(int(time.time() * 1000))
    async with await open_storage(server.url, clock=clock) as store:
        await empty(server.url)
        await store.enqueue([NewJob("old") for _ in range(4)])
        first, second, third, _ = await store.take("old", 4)
        for job in (third, first):
            await store.settle([Bury(job.lease, "broken")])
            clock.advance(1)
        await administer(server.url, DROP_NEW_SPACES + SET_VERSION % 2)
    async with await open_storage(server.url, clock=clock) as store:
        await store.settle([Bury(second.lease, "broken")])
        assert await store.purge("old", "dead", limit=1) == 1
        assert [job.id for job in await store.browse("old", "dead")] == [first.id, second.id]
        assert await store.purge("old", "dead", before=clock.now()) == 1
        assert [job.id for job in await store.browse("old", "dead")] == [second.id]


async def test_the_jobs_of_revision_3_are_seen_and_dropped_after_an_upgrade(server: TarantoolServer) -> None:
    await administer(server.url, GRANT)
    async with await open_storage(server.url) as older:
        await empty(server.url)
        await administer(server.url, TO_REVISION_3)
        new = [NewJob("old", key="k", waiter=b"%d" % n, on_duplicate="attach") for n in range(3)]
        (id,) = {answer.id for answer in await older.enqueue(new)}
        (job,) = await older.take("old", 1)
        with pytest.raises(SchemaMismatch, match="revision 3"):
            await open_storage(server.worker_url + "?install=no")
        await (await open_storage(server.url)).close()
        # The older client goes on beside the new one, over the connection that it has.
        async with await open_storage(server.worker_url) as newer:
            seen = await newer.peek("old", "k", after=1)
            assert (seen.job and seen.job.id, seen.waiters) == (id, (b"1", b"2"))
            await older.enqueue([NewJob("old", key="k", waiter=b"3", on_duplicate="attach")])
            assert not await newer.drop("old", id, 3)
            assert (await newer.peek("old", "k", after=3)).waiters == (b"3",)
            assert await newer.drop("old", id, 4)
        assert [each.why for each in await older.settle([Done(job.lease)])] == ["lost"]


async def test_the_jobs_of_revision_4_are_started_after_an_upgrade(server: TarantoolServer) -> None:
    await administer(server.url, GRANT)
    async with await open_storage(server.url) as older:
        await empty(server.url)
        await administer(server.url, TO_REVISION_4)
        (first, second) = await older.enqueue([NewJob("old", key="k", delay=900, waiter=b"w"), NewJob("old")])
        (job,) = await older.take("old", 1)
        assert await older.settle([Retry(job.lease, delay=900)]) == []
        with pytest.raises(SchemaMismatch, match="revision 4"):
            await open_storage(server.worker_url + "?install=no")
        waiting = asyncio.create_task(older.wait(["old"], 60))
        await (await open_storage(server.url)).close()
        # The older client goes on beside the new one, over the connection that it has, and is woken by it.
        async with await open_storage(server.worker_url) as newer:
            assert await newer.start_now([first.id, second.id]) == 2
        assert await asyncio.wait_for(waiting, 20)
        jobs = await older.take("old", 9)
        assert [(job.id, job.attempts, job.waiters) for job in jobs] == [(first.id, 0, 1), (second.id, 1, 0)]
        assert await older.settle([Done(job.lease) for job in jobs]) == []


async def test_the_jobs_of_revision_5_are_found_in_their_line_after_an_upgrade(server: TarantoolServer) -> None:
    await administer(server.url, GRANT)
    async with await open_storage(server.url) as older:
        await empty(server.url)
        await administer(server.url, TO_REVISION_5)
        ids = [each.id for each in await older.enqueue([NewJob("old", rank=n % 3) for n in range(300)])]
        with pytest.raises(SchemaMismatch, match="revision 5"):
            await open_storage(server.worker_url + "?install=no")
        await (await open_storage(server.url)).close()
        async with await open_storage(server.worker_url) as newer:
            place = await newer.place(ids[299], 20)
            assert place is not None and (place.ahead, place.newer, place.exact) == (299, 0, True)
            place = await newer.place(ids[150], 20)
            assert place is not None and not place.exact and 45 <= place.ahead <= 55
        (job,) = await older.take("old", 1)
        assert await older.settle([Done(job.lease)]) == []


async def test_an_older_client_hears_of_waiters_what_it_understands(server: TarantoolServer) -> None:
    async with await open_storage(server.url) as store:
        await empty(server.url)
        await store.enqueue([NewJob("q", key="k", waiter=b"%d" % n, on_duplicate="attach") for n in range(3)])
        (job,) = await store.take("q", 1)
        connection = await connect(address_of(urlsplit(server.url)))
        args = (None, "q", job.id, job.attempts)  # it asks for no more
        assert await connection.call("waiters", args, Decoder(tuple[list[str]])) == ["0", "1", "2"]
        connection.close()


async def test_an_older_client_looks_and_hears_what_it_understands(server: TarantoolServer) -> None:
    async with await open_storage(server.url) as store:
        await empty(server.url)
        connection = await connect(address_of(urlsplit(server.url)))
        heard = Decoder(tuple[tuple[int, list[str]]])
        count, _ = await connection.call("listen", (None, ["q"], None, 0), heard)
        looked = Decoder(tuple[tuple[bool, float | None]])  # it asks for no more
        assert await connection.call("look", (None, ["q"]), looked) == (False, None)
        await store.enqueue([NewJob("q")])
        assert await connection.call("look", (None, ["q"]), looked) == (True, None)
        # A name that no queue has wakes nobody.
        assert (await connection.call("listen", (None, ["q"], count, 0), heard))[1] == ["q", "+q"]
        connection.close()


async def test_an_upgrade_happens_under_those_who_work_and_sleep(server: TarantoolServer) -> None:
    async with await open_storage(server.url) as store:
        sleeping = asyncio.create_task(store.wait(["u"], 60))
        await store.enqueue([NewJob("v")])
        (job,) = await store.take("v", 1)
        await administer(server.url, RELOAD)  # a new stamp: the sources are loaded again
        assert await store.settle([Done(job.lease, then=[NewJob("u")])]) == []
        assert await asyncio.wait_for(sleeping, 10)


@pytest.mark.parametrize(
    "url", ["tarantool://", "tarantool://host:port", "tarantool://host/path", "tarantool://host?mode=fast"]
)
async def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        await open_storage(url)


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


async def test_it_works_on_uvloop_too(server: TarantoolServer) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def work() -> bytes:
        async with await open_storage(server.url) as store:
            await store.enqueue([NewJob("uv", b"x" * 250_000)])
            (job,) = await store.take("uv", 1)
            assert await store.settle([Done(job.lease)]) == []
            return job.data

    def run() -> bytes:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work())

    assert await asyncio.to_thread(run) == b"x" * 250_000
