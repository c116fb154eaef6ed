"""What is particular to Redis: lost replies, forgotten scripts, a full server, URLs, scripts and their callers."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from accoda import Bury, Done, ManualClock, NewJob, Rank, Retry, open_storage
from accoda.errors import InvalidInput, SchemaMismatch, StorageClosed, StorageError, StorageFull, StorageUnavailable
from accoda.storage.protocol import Store
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.scripts import all_scripts, script
from accoda.storage.redis.storage import RedisStorage
from accoda.testing.servers.process import find_program
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import RedisServer

Q = "q"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with need(RedisServer) as server:
        yield server


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url) as store:
        yield store


class Cutter:
    """A cable between a client and the server. With `cutting`, the next script gets through, but not its reply."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.cutting = False
        self.cuts = 0
        self._cut = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)

        async def replies() -> None:
            while data := await there.read(65536):
                if self._cut:
                    self._cut, self.cuts = False, self.cuts + 1
                    break
                writer.write(data)
            writer.close()
            back.close()

        async def requests() -> None:
            while data := await reader.read(65536):
                if self.cutting and b"EVALSHA" in data:
                    self.cutting, self._cut = False, True
                back.write(data)
            back.close()

        await asyncio.gather(replies(), requests(), return_exceptions=True)
        for end in (writer, back):
            end.close()
            await asyncio.gather(end.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def cable(server: RedisServer, options: str = "") -> AsyncIterator[tuple[Store, Cutter]]:
    server.ask("FLUSHALL")
    async with await open_storage(server.url) as store:
        await use_every_verb(store)  # so that the server knows all scripts, and the reply that is cut is an answer
    server.ask("FLUSHALL")
    cutter = Cutter(server.port)
    listener = await asyncio.start_server(cutter.carry, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, await open_storage(f"redis://127.0.0.1:{port}/0{options}") as store:
        yield store, cutter
        await store.close()
        await asyncio.sleep(0.01)  # the cable's ends see that it is over


async def test_a_batch_is_read_once_for_all_its_jobs(store: Store, server: RedisServer) -> None:
    # It names all of them: read for each job, a settle of thousands would keep the server busy for many seconds.
    await store.enqueue([NewJob(Q)] * 50)
    leases = [job.lease for job in await store.take(Q, 50)]
    server.ask("CONFIG", "RESETSTAT")
    assert await store.settle([*map(Retry, leases[:25]), *(Bury(lease, "") for lease in leases[25:])]) == []
    reads = re.search(r"cmdstat_hget:calls=(\d+)", server.ask("INFO", "commandstats"))
    assert reads is not None
    assert int(reads[1]) <= 50 + 2, "the notes of each job, and the batch"


class TestALostReply:
    async def test_of_an_enqueue_makes_no_second_job(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            cutter.cutting = True
            answers = await store.enqueue([NewJob(Q), NewJob(Q, key="k"), NewJob(Q, key="k")])
            assert [answer.what for answer in answers] == ["created", "created", "kept"]
            assert (await store.stats()).queues[Q].ready == 2
            assert cutter.cuts == 1

    async def test_of_an_enqueue_of_plain_jobs_makes_no_second_ones(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            cutter.cutting = True
            assert [answer.id for answer in await store.enqueue([NewJob(Q)] * 3)] == [1, 2, 3]
            assert (await store.stats()).queues[Q].ready == 3
            assert cutter.cuts == 1

    async def test_of_a_settle_of_a_whole_batch_is_no_lost_lease(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            await store.enqueue([NewJob(Q)] * 3)
            jobs = await store.take(Q, 3)
            cutter.cutting = True
            assert await store.settle([Done(job.lease) for job in jobs]) == []
            assert (await store.stats()).queues[Q].done == 3
            assert cutter.cuts == 1

    async def test_of_a_take_gives_the_same_batch(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            ids = [answer.id for answer in await store.enqueue([NewJob(Q, key="k", waiter=b"w"), NewJob(Q), NewJob(Q)])]
            cutter.cutting = True
            jobs = await store.take(Q, 2)
            assert [(job.id, job.attempts, job.waiters) for job in jobs] == [(ids[0], 0, 1), (ids[1], 0, 0)]
            assert (await store.stats()).queues[Q].taken == 2
            assert cutter.cuts == 1

    async def test_of_a_take_tells_again_when_a_job_began_afresh(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            (answer, _) = await store.enqueue([NewJob(Q), NewJob(Q)])
            await store.settle([Bury(job.lease, "broken") for job in await store.take(Q, 1)])
            assert await store.revive([answer.id]) == 1
            cutter.cutting = True
            assert [(job.attempts, job.fresh_at) for job in await store.take(Q, 2)] == [(1, 1), (0, 0)]
            assert cutter.cuts == 1

    async def test_of_a_settle_is_no_lost_lease(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            await store.enqueue([NewJob(Q)] * 3)
            one, two, three = await store.take(Q, 3)
            cutter.cutting = True
            then = [NewJob("next")]
            assert await store.settle([Done(one.lease, then), Retry(two.lease), Bury(three.lease, "x", then)]) == []
            stats = (await store.stats()).queues
            assert (stats[Q].done, stats[Q].retried, stats[Q].buried, stats["next"].ready) == (1, 1, 1, 2)
            assert [each.why for each in await store.settle([Done(one.lease)])] == ["lost"]
            assert cutter.cuts == 1

    async def test_of_a_conditional_write_is_no_conflict(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            cutter.cutting = True
            assert await store.write("doc", b"1", version=0) == 1
            assert await store.write("doc", b"2", version=1) == 2
            assert cutter.cuts == 1

    async def test_of_a_removal_is_counted_once(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 3)]
            cutter.cutting = True
            assert await store.remove(ids) == 3
            assert cutter.cuts == 1

    async def test_of_a_drop_tells_of_what_was_dropped(self, server: RedisServer) -> None:
        async with cable(server) as (store, cutter):
            ids = [answer.id for answer in await store.enqueue([NewJob(Q)] * 2)]
            cutter.cutting = True
            assert await store.drop(Q, ids[0], 0)
            assert not await store.drop(Q, ids[0], 0)
            assert cutter.cuts == 1
            cutter.cutting = True
            assert await asyncio.gather(*(store.drop(Q, id, 0) for id in (7777, *ids, ids[1]))) == [
                False, False, True, False,
            ]  # fmt: skip
            assert cutter.cuts == 2

    async def test_is_remembered_not_much_longer_than_until_the_reply_is_seen(
        self, store: Store, server: RedisServer
    ) -> None:
        for _ in range(200):
            await store.enqueue([NewJob(Q)])
        (calls,) = server.ask("KEYS", "accoda:calls:*")
        assert 1 <= server.ask("HLEN", calls) <= 17
        assert 0 < server.ask("TTL", calls) <= 3600


class TestAServerThatIsGone:
    async def test_is_an_error_after_the_timeout(self) -> None:
        with need(RedisServer) as gone:
            async with await open_storage(f"{gone.url}?timeout=0.3") as store:
                gone.kill()
                with pytest.raises(StorageUnavailable, match=r"0\.3 s"):
                    await store.enqueue([NewJob(Q)])
                with pytest.raises(StorageUnavailable):
                    await store.wait([Q], 5)

    async def test_is_waited_for_by_those_who_sleep(self) -> None:
        with need(RedisServer) as server:
            async with await open_storage(server.url) as store, await open_storage(server.url) as other:
                waiting = asyncio.create_task(store.wait([Q], 20))
                for _ in range(5):
                    await store.stats()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await other.enqueue([NewJob(Q)])
                assert await waiting

    async def test_cannot_be_opened(self) -> None:
        with pytest.raises(StorageUnavailable):
            await open_storage("redis://127.0.0.1:1/0?timeout=0.2")


class TestScripts:
    async def test_are_sent_again_when_the_server_forgot_them(self, store: Store, server: RedisServer) -> None:
        for _ in range(2):
            server.ask("SCRIPT", "FLUSH")
            await asyncio.gather(*(store.enqueue([NewJob(Q)]) for _ in range(5)))
            jobs = await store.take(Q, 5)
            assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert (await store.stats()).queues[Q].done == 10

    async def test_are_called_as_their_headers_say(
        self, store: Store, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: dict[str, set[tuple[int, int]]] = {}
        prepare = Caller._prepare

        def noting(self: Caller, script: Any, shard: Any, keys: Any, number: Any, args: Any, writes: bool) -> Any:
            seen.setdefault(script.name, set()).add((len(keys), 4 + len(args)))
            return prepare(self, script, shard, keys, number, args, writes)

        monkeypatch.setattr(Caller, "_prepare", noting)
        await use_every_verb(store)
        only_in_a_cluster = {"collect", "deliver", "post", "register", "stand"}
        only_where_others_wrote = {"aside", "index"}
        assert set(seen) | only_in_a_cluster | only_where_others_wrote == set(all_scripts())
        for name, calls in seen.items():
            header = script(name).header
            for keys, args in calls:
                assert fits(header["keys"], keys), f"{name}: {keys} keys for {header['keys']!r}"
                assert fits(header["arguments"], args), f"{name}: {args} arguments for {header['arguments']!r}"

    @pytest.mark.parametrize("name", all_scripts())
    def test_use_no_more_than_their_headers_name(self, name: str) -> None:
        verb = script(name)
        assert set(verb.header) == {"keys", "arguments", "answer", "uses"}
        assert verb.header["arguments"].startswith("now, call, forget, width")
        for word, field in (("KEYS", "keys"), ("ARGV", "arguments")):
            used = max((int(n) for n in re.findall(rf"{word}\[(\d+)\]", verb.source.decode())), default=0)
            assert used <= len(named(verb.header[field])) + 1


def named(text: str) -> list[str]:
    """The names of a header's list, without what is in brackets."""
    return re.sub(r"\([^)]*\)", "", text).split(", ")


def fits(text: str, count: int) -> bool:
    """Whether so many keys or arguments are what a header lists; "then ..." and "each" stand for any number."""
    names = named(text)
    fixed = [name for name in names if not name.startswith("then") and " each" not in name]
    after_then = next((n for n, name in enumerate(names) if name.startswith("then")), len(names))
    fixed = [name for name in fixed if names.index(name) < after_then]
    return count >= len(fixed) if len(fixed) < len(names) else count == len(fixed)


async def use_every_verb(store: Store) -> None:
    ids = [answer.id for answer in await store.enqueue([NewJob(Q, key="k", waiter=b"w"), NewJob(Q), NewJob(Q)])]
    await store.rerank([Rank(Q, ids[0], -1.0)])
    await store.peek(Q, "k", after=0)
    await store.drop(Q, (await store.enqueue([NewJob(Q)]))[0].id, 0)
    one, two, three = await store.take(Q, 3)
    await store.extend([one.lease], 60)
    await store.waiters(one.lease)
    await store.settle([Done(one.lease, then=[NewJob("next")]), Bury(two.lease, "x"), Retry(three.lease)])
    await store.revive([two.id])
    await store.start_now([two.id])
    await store.wait([Q], 0)
    await store.stats()
    await store.find(two.id)
    await store.place(two.id)
    await store.browse(Q, "ready")
    await store.remove([two.id])
    await store.pause(Q)
    await store.resume(Q)
    await store.purge(Q, "ready")
    await store.write("doc", b"")
    await store.read("doc")
    await store.documents("")
    await store.enqueue([NewJob(Q)])
    await store.settle([Done(job.lease) for job in await store.take(Q, 1)])
    await store.enqueue([NewJob(Q)])
    taking = asyncio.create_task(store.take(Q, 1))
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await store.stats()


class TestACancelledTake:
    @pytest.mark.parametrize("turns", range(6))
    async def test_swallows_nothing(self, store: Store, turns: int) -> None:
        await store.enqueue([NewJob(Q)] * 8)
        taking = [asyncio.create_task(store.take(Q, 2)) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in taking[1:]:
            task.cancel()
        first, *_ = await asyncio.gather(*taking, return_exceptions=True)
        assert isinstance(first, list)
        while (stats := (await store.stats()).queues[Q]).taken != 2:
            await asyncio.sleep(0)
        assert (stats.ready, stats.expired) == (6, 0)


class TestCallsThatGoTogether:
    async def test_each_get_their_own_answers(self, store: Store) -> None:
        answers = await asyncio.gather(
            *(store.enqueue([NewJob(Q, str(n).encode(), key=f"k{n % 7}" if n % 2 else None)]) for n in range(40))
        )
        ids = {answer.id for (answer,) in answers}
        assert len(ids) == 20 + 7
        batches = await asyncio.gather(*(store.take(Q, 2) for _ in range(20)))
        jobs = [job for batch in batches for job in batch]
        assert {job.id for job in jobs} == ids
        assert sorted(len(batch) for batch in batches) == [0] * 6 + [1] + [2] * 13
        outcomes = [*(Done(job.lease) for job in jobs), *(Done(job.lease) for job in jobs)]
        refused = await asyncio.gather(*(store.settle([outcome]) for outcome in outcomes))
        assert [[each.lease for each in answer] for answer in refused[: len(jobs)]] == [[]] * len(jobs)
        assert [[each.lease for each in answer] for answer in refused[len(jobs) :]] == [[job.lease] for job in jobs]


class TestAFullServer:
    async def test_refuses_new_jobs_and_lets_workers_catch_up(self) -> None:
        with need(RedisServer) as server:
            async with await open_storage(server.url) as store:
                await store.enqueue([NewJob(Q, b"x" * 100, keep_for=60, key=str(n)) for n in range(1000)])
                expiring = await store.take(Q, 5, lease=0.05)
                server.ask("CONFIG", "SET", "maxmemory", "1mb")
                with pytest.raises(StorageFull, match="maxmemory"):
                    await store.enqueue([NewJob(Q), NewJob("other")])
                with pytest.raises(StorageFull):
                    await store.write("doc", b"1")
                await store.pause("later")
                await asyncio.sleep(0.06)
                jobs = await store.take(Q, 10)
                assert [(job.id, job.attempts) for job in jobs[:5]] == [(job.id, 1) for job in expiring]
                assert await store.extend([jobs[0].lease], 60) == []
                with pytest.raises(StorageFull):
                    await store.settle([Done(jobs[0].lease, then=[NewJob("next")])])
                assert await store.settle([*(Done(job.lease) for job in jobs[:8]), Retry(jobs[8].lease)]) == []
                stats = (await store.stats()).queues
                assert (stats[Q].ready, stats[Q].taken, stats[Q].done) == (991, 1, 8)
                assert "next" not in stats and "other" not in stats
                server.ask("CONFIG", "SET", "maxmemory", "0")
                assert len(await store.enqueue([NewJob(Q)])) == 1

    async def test_that_would_drop_jobs_silently_is_not_opened(self) -> None:
        options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
        with need(lambda: RedisServer("none", *options)) as server, pytest.raises(StorageError, match="noeviction"):
            await open_storage(server.url)


class TestOpening:
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
    async def test_a_url_that_cannot_be_used_says_why(self, url: str, says: str) -> None:
        with pytest.raises(InvalidInput, match=says):
            await open_storage(url)

    async def test_a_single_server_as_a_cluster_says_how_to_open_it(self, server: RedisServer) -> None:
        with pytest.raises(StorageError, match="redis://"):
            await open_storage(f"redis+cluster://127.0.0.1:{server.port}?timeout=1")

    async def test_a_store_of_a_newer_accoda_is_left_alone(self, server: RedisServer) -> None:
        server.ask("FLUSHALL")
        server.ask("SET", "accoda:layout", "99")
        with pytest.raises(SchemaMismatch, match="upgrade"):
            await open_storage(server.url)

    async def test_prefixes_and_databases_are_stores_of_their_own(self, store: Store, server: RedisServer) -> None:
        await store.enqueue([NewJob(Q)])
        for url in (f"{server.url}?prefix=other", server.url[:-1] + "1"):
            async with await open_storage(url) as other:
                assert (await other.stats()).queues == {}

    async def test_a_password_is_asked_for_and_checked(self) -> None:
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

    async def test_over_tls(self, tmp_path: Path) -> None:
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


class TestAnotherEventLoop:
    async def test_sends_its_calls_home(self, store: Store) -> None:
        await asyncio.to_thread(lambda: asyncio.run(store.enqueue([NewJob(Q)])))
        assert (await store.stats()).queues[Q].ready == 1

    def test_is_told_when_home_has_ended(self, server: RedisServer) -> None:
        async def opened() -> Store:
            store = await open_storage(server.url)
            assert isinstance(store, RedisStorage)
            for connection in store._caller.topology.close():
                await connection.wait_closed()
            return store

        store = asyncio.run(opened())
        with pytest.raises(StorageClosed, match="event loop"):
            asyncio.run(store.stats())


async def test_the_clock_of_a_test_is_the_servers_time(server: RedisServer) -> None:
    server.ask("FLUSHALL")
    clock = ManualClock(1_000)
    async with await open_storage(server.url, clock=clock) as store:
        await store.enqueue([NewJob(Q)])
        assert (await store.take(Q, 1))[0].created_at == 1_000


async def test_the_rights_that_the_docs_name_are_enough(server: RedisServer) -> None:
    docs = Path(__file__).parents[2] / "docs" / "redis.md"
    (line,) = [line for line in docs.read_text().splitlines() if line.startswith("ACL SETUSER jobs")]
    assert server.ask(*line.split()) == "OK"
    server.ask("FLUSHALL")
    async with await open_storage(server.url.replace("redis://", "redis://jobs:secret@")) as store:
        await use_every_verb(store)
        waiting = asyncio.create_task(store.wait(["else"], 10))
        await store.stats()
        await store.enqueue([NewJob("else")])
        assert await waiting


async def test_closing_while_the_server_is_away_ends_all_calls() -> None:
    with need(RedisServer) as gone:
        store = await open_storage(gone.url)
        await store.enqueue([NewJob(Q)])
        gone.kill()
        calls = [asyncio.create_task(store.enqueue([NewJob(Q)])) for _ in range(3)]
        calls.append(asyncio.create_task(store.take(Q, 1)))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            await store.close()
            assert {type(each) for each in await asyncio.gather(*calls, return_exceptions=True)} == {StorageClosed}
