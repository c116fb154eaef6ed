"""Many callers of one PostgreSQL or Tarantool storage at once: their calls go together, and none of them can tell."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer, administer, empty

from accoda import Store, open_storage
from accoda.errors import StorageError, StorageUnavailable
from accoda.model import ById, Done, Job, NewJob, Refused, Retry

_numbers = itertools.count(1)
Server = PostgresServer | TarantoolServer


@pytest.fixture(scope="module", params=["postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    start = PostgresServer if request.param == "postgres" else TarantoolServer
    with need(start) as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return f"{server.url}?schema=joined_{next(_numbers)}" if isinstance(server, PostgresServer) else server.url


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with await open_storage(url) as opened:
        if url.startswith("tarantool"):
            await empty(url)
        yield opened


@pytest.fixture
def sent(store: Store, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the server was asked for each verb."""
    client: Any = store._client  # type: ignore[attr-defined]
    counted: Counter[str] = Counter()

    def counting(name: str) -> None:
        real = getattr(client, name)

        async def call(verb: str, *args: Any, **kwargs: Any) -> Any:
            counted[verb] += 1
            return await real(verb, *args, **kwargs)

        monkeypatch.setattr(client, name, call)

    for name in ("fetch", "once"):
        if hasattr(client, name):
            counting(name)
    return counted


async def fill(store: Store, count: int, **fields: Any) -> list[Job]:
    """Take as many jobs as are stored here."""
    await store.enqueue([NewJob("q", str(number).encode(), **fields) for number in range(count)])
    return await store.take("q", count)


async def ready(store: Store) -> int:
    return (await store.stats()).queues["q"].ready


async def refuse_in_postgres(url: str) -> None:
    """From now on the server refuses a job whose data are "bad"."""
    place, _, schema = url.partition("?schema=")
    sql = await asyncpg.connect(place)
    await sql.execute(
        f"""CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN IF NEW.data = 'bad' THEN RAISE 'no'; END IF; RETURN NEW; END $$;
            CREATE TRIGGER refuse BEFORE INSERT ON {schema}.jobs FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()"""
    )
    await sql.close()


async def refuse_in_tarantool(url: str) -> None:
    await administer(
        url,
        """function refuse(_, new) if new ~= nil and new[4] == 'bad' then error('no') end return new end
           box.space.accoda_jobs:before_replace(refuse) return 0""",
    )


class TestEnqueue:
    async def test_a_hundred_callers_take_a_few_round_trips(self, store: Store, sent: Counter[str]) -> None:
        async def caller(name: int) -> list[int]:
            return [(await store.enqueue([NewJob("q", b"%d %d" % (name, n))]))[0].id for n in range(5)]

        answers = await asyncio.gather(*(caller(name) for name in range(100)))
        assert len({id for ids in answers for id in ids}) == 500
        assert all(ids == sorted(ids) for ids in answers)
        assert sum(sent.values()) < 30
        jobs = await store.take("q", 500)
        assert {job.data: job.id for job in jobs} == {
            b"%d %d" % (name, n): id for name, ids in enumerate(answers) for n, id in enumerate(ids)
        }

    async def test_each_gets_the_answers_to_his_own_jobs(self, store: Store) -> None:
        await store.enqueue([NewJob("q", b"held", key="k")])
        answers = await asyncio.gather(
            *(
                store.enqueue([NewJob("q", b"%d" % n), NewJob("q", b"late", delay=60), NewJob("q", key="k")])
                if n % 2
                else store.enqueue([NewJob("q", b"%d" % n)])
                for n in range(10)
            )
        )
        assert [[answer.what for answer in each] for each in answers] == [
            ["created"],
            ["created", "created", "kept"],
        ] * 5
        by_id = {job.id: job.data for job in await store.take("q", 100)}
        assert [by_id[each[0].id] for each in answers] == [b"%d" % n for n in range(10)]

    async def test_one_that_the_server_refuses_is_refused_alone(self, store: Store, url: str, server: Server) -> None:
        await (refuse_in_postgres if isinstance(server, PostgresServer) else refuse_in_tarantool)(url)
        calls = [[NewJob("q", b"good"), NewJob("q", b"bad" if n == 5 else b"good")] for n in range(10)]
        answers = await asyncio.gather(*map(store.enqueue, calls), return_exceptions=True)
        if isinstance(server, TarantoolServer):
            await administer(url, "box.space.accoda_jobs:before_replace(nil, refuse) return 0")
        assert isinstance(answers[5], StorageError)
        assert all(isinstance(each, list) and len(each) == 2 for n, each in enumerate(answers) if n != 5)
        assert await ready(store) == 18  # nothing of the bad call is left

    async def test_one_caller_who_goes_away_does_not_take_the_others_with_him(self, store: Store) -> None:
        calls = [asyncio.create_task(store.enqueue([NewJob("q", b"%d" % n)])) for n in range(10)]
        await asyncio.sleep(0)
        calls[4].cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers[4], asyncio.CancelledError)
        assert all(isinstance(each, list) for n, each in enumerate(answers) if n != 4)
        assert {job.data for job in await store.take("q", 10)} >= {b"%d" % n for n in range(10) if n != 4}


class TestTake:
    async def test_each_job_goes_to_one_caller_and_the_first_gets_the_first(
        self, store: Store, sent: Counter[str]
    ) -> None:
        await store.enqueue([NewJob("q", b"%d" % n, rank=float(n)) for n in range(40)])
        sent.clear()
        shares = await asyncio.gather(*(store.take("q", 3) for _ in range(16)))
        assert [len(share) for share in shares] == [3] * 13 + [1, 0, 0]
        assert [job.data for share in shares for job in share] == [b"%d" % n for n in range(40)]
        assert sent["take"] == 2

    async def test_what_came_for_a_caller_who_went_away_is_given_back(self, store: Store) -> None:
        await store.enqueue([NewJob("q", b"%d" % n) for n in range(10)])
        takes = [asyncio.create_task(store.take("q", 1)) for _ in range(10)]
        while not takes[0].done():
            await asyncio.sleep(0)
        takes[4].cancel()
        await asyncio.gather(*takes, return_exceptions=True)
        (kept,) = await take_soon(store)
        assert kept.attempts == 0
        taken = [job.data for n, take in enumerate(takes) if n != 4 for job in take.result()]
        assert {*taken, kept.data} == {b"%d" % n for n in range(10)}


async def take_soon(store: Store) -> list[Job]:
    async with asyncio.timeout(10):
        while not (jobs := await store.take("q", 10)):
            assert await store.wait(["q"], 10)
    return jobs


class TestSettle:
    async def test_single_outcomes_go_together(self, store: Store, sent: Counter[str]) -> None:
        jobs = await fill(store, 100)
        sent.clear()
        assert await asyncio.gather(*(store.settle([Done(job.lease)]) for job in jobs)) == [[]] * 100
        assert sum(sent.values()) <= 3
        queue = (await store.stats()).queues["q"]
        assert (queue.total, queue.done) == (0, 100)

    async def test_a_lost_lease_is_refused_to_him_who_lost_it(self, store: Store) -> None:
        jobs = await fill(store, 10)
        await store.settle([Retry(jobs[3].lease)])
        answers = await asyncio.gather(*(store.settle([Done(job.lease)]) for job in jobs))
        assert answers == [[Refused(jobs[3].lease, "lost")] if n == 3 else [] for n in range(10)]

    async def test_of_two_who_settle_one_job_one_does(self, store: Store) -> None:
        jobs = await fill(store, 3)
        pairs = [job for job in jobs for _ in range(2)]
        answers = await asyncio.gather(*(store.settle([Done(job.lease)]) for job in pairs))
        assert answers == [answer for job in jobs for answer in ([], [Refused(job.lease, "lost")])]

    async def test_jobs_with_keys_waiters_and_kept_results_are_settled_as_ever(self, store: Store) -> None:
        await store.enqueue(
            [
                NewJob("q", b"plain"),
                NewJob("q", b"keyed", key="k"),
                NewJob("q", b"kept", keep_for=60),
                NewJob("q", b"grown", key="g", on_duplicate="attach", waiter=b"w"),
                NewJob("q", b"plain"),
            ]
        )
        jobs = await store.take("q", 5)
        answers = await asyncio.gather(
            *(store.settle([Done(job.lease, waiters=0 if job.key == "g" else None)]) for job in jobs)
        )
        assert answers == [[], [], [], [Refused(jobs[3].lease, "grown")], []]
        assert [(await store.enqueue([NewJob("q", key=key)]))[0].what for key in "kg"] == ["created", "kept"]
        kept = (await store.look(ById(jobs[2].id))).job
        assert kept is not None and kept.state == "done"

    async def test_a_follow_up_is_stored_with_its_outcome(self, store: Store) -> None:
        jobs = await fill(store, 6)
        await asyncio.gather(
            *(store.settle([Done(job.lease, then=[NewJob("next", job.data)] if n % 2 else [])])
              for n, job in enumerate(jobs))
        )  # fmt: skip
        assert {job.data for job in await store.take("next", 10)} == {b"1", b"3", b"5"}


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
class TestLocks:
    """A caller's own transaction may hold a key, and the job of it, for as long as it likes."""

    async def test_a_key_that_is_locked_holds_nobody_else_up(self, store: Store, server: Server) -> None:
        sql = await asyncpg.connect(server.url)
        transaction = sql.transaction()
        await transaction.start()
        await store.enqueue([NewJob("q", key="k")], connection=sql)  # type: ignore[call-arg]
        waits = asyncio.create_task(store.enqueue([NewJob("q", key="k")]))
        async with asyncio.timeout(10):
            await asyncio.gather(*(store.enqueue([NewJob("q")]) for _ in range(20)))
        assert not waits.done()
        await transaction.commit()
        assert (await waits)[0].what == "kept"
        await sql.close()

    async def test_a_job_that_is_locked_holds_up_nobody_who_settles_others(self, store: Store, server: Server) -> None:
        await store.enqueue([NewJob("q", key="k"), *(NewJob("q") for _ in range(9))])
        jobs = await store.take("q", 10)
        sql = await asyncpg.connect(server.url)
        transaction = sql.transaction()
        await transaction.start()
        replaced = [NewJob("q", key="k", on_duplicate="replace")]
        await store.enqueue(replaced, connection=sql)  # type: ignore[call-arg]
        settles = [asyncio.create_task(store.settle([Done(job.lease)])) for job in [*jobs[1:], jobs[0]]]
        async with asyncio.timeout(10):
            # All went together, and the others are settled when the one that is locked still waits.
            while (await store.stats()).queues["q"].done < 9:
                await asyncio.sleep(0.01)
        assert not settles[-1].done()
        await transaction.commit()
        assert (await asyncio.gather(*settles))[-1] == [Refused(jobs[0].lease, "lost")]
        await sql.close()


class TestKill:
    """The server dies under many callers, and comes back."""

    async def test_what_was_acknowledged_is_there_and_nothing_is_there_twice(self, url: str, server: Server) -> None:
        async with await open_storage(url) as store:
            if isinstance(server, TarantoolServer):
                await administer(url, "box.space.accoda_jobs:truncate() return 0")
            stored: set[bytes] = set()
            unsure: set[bytes] = set()

            async def caller(name: int) -> None:
                for n in range(40):
                    data = b"%d %d" % (name, n)
                    try:
                        await store.enqueue([NewJob("killed", data)])
                        stored.add(data)
                    except StorageUnavailable as error:
                        assert error.unsure
                        unsure.add(data)

            callers = [asyncio.create_task(caller(name)) for name in range(50)]
            while len(stored) < 500:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await asyncio.gather(*callers)
            found = Counter(job.data for job in await store.take("killed", 10_000))
        assert stored <= set(found) <= stored | unsure
        assert len(stored) + len(unsure) == 2000
        assert max(found.values()) == 1
