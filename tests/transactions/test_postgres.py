"""A store on PostgreSQL, and a caller in the same database: the job exists if and only if the transaction commits."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio
from proof.chaos.transactions.callers import POSTGRES, Blocking, Caller

from accoda import App
from accoda.errors import InvalidInput


@pytest_asyncio.fixture
async def app(database: str) -> AsyncIterator[App]:
    async with App(database) as app:
        await app.connections.get()
        yield app


@pytest_asyncio.fixture(params=POSTGRES)
async def caller(request: pytest.FixtureRequest, database: str, app: App) -> AsyncIterator[Caller]:
    caller = await POSTGRES[request.param](database)
    await caller.execute("INSERT INTO orders (item) VALUES ('tea')")
    yield caller
    await caller.close()


async def waiting(app: App, queue: str) -> list[int]:
    return [job.id for job in await app.storage.browse(queue, "ready")]


async def test_a_commit_stores_the_job_whose_id_was_given_at_once(queue: str, app: App, caller: Caller) -> None:
    told = await caller.enqueue(app, queue, {"n": 1}, headers={"tenant": "acme"}, name="50 % off", lane="anna")
    assert (told.what, told.id > 0) == ("created", True)
    assert await waiting(app, queue) == []
    await caller.commit()
    (job,) = await app.storage.take(queue, 1)
    assert (job.id, job.lane) == (told.id, "anna")


async def test_a_rollback_takes_the_job_back(queue: str, app: App, caller: Caller) -> None:
    await caller.enqueue(app, queue, {"n": 1})
    await caller.rollback()
    assert await waiting(app, queue) == []


async def test_a_savepoint_that_is_rolled_back_takes_its_job_back(queue: str, app: App, caller: Caller) -> None:
    kept = await caller.enqueue(app, queue, 1)
    await caller.execute("SAVEPOINT s")
    await caller.enqueue(app, queue, 2)
    await caller.execute("ROLLBACK TO SAVEPOINT s")
    after = await caller.enqueue(app, queue, 3)
    await caller.commit()
    assert await waiting(app, queue) == [kept.id, after.id]


async def test_a_connection_that_breaks_before_the_commit_takes_the_job_back(
    queue: str, app: App, caller: Caller
) -> None:
    await caller.enqueue(app, queue, 1)
    await caller.close()
    assert await waiting(app, queue) == []


async def test_a_key_is_created_once_by_two_transactions(queue: str, app: App, caller: Caller) -> None:
    mine = await caller.enqueue(app, queue, 1, key="order-17")
    other = asyncio.create_task(app.enqueue(queue, 2, key="order-17"))
    await asyncio.sleep(0.05)
    assert not other.done(), "it waits for the end of the first"
    await caller.commit()
    assert ((await other).what, (await other).id) == ("kept", mine.id)


async def test_the_commit_wakes_a_waiting_worker(queue: str, app: App, caller: Caller) -> None:
    waiting = asyncio.create_task(app.storage.wait([queue], 30))
    await caller.enqueue(app, queue, 1)
    await asyncio.sleep(0)
    assert not waiting.done()
    await caller.commit()
    async with asyncio.timeout(5):
        assert await waiting


async def test_many_jobs_are_one_call(queue: str, app: App, caller: Caller) -> None:
    told = await caller.enqueue_many(app, queue, range(30))
    await caller.commit()
    assert [each.id for each in told] == await waiting(app, queue)


async def test_a_handler_adds_its_type_and_the_middleware_its_headers(
    queue: str, database: str, caller: Caller
) -> None:
    def note(draft: object) -> None:
        draft.headers["trace"] = "t1"  # type: ignore[attr-defined]

    app, seen = App(database, enqueue_middleware=[note]), []  # type: ignore[var-annotated]

    @app.handler(queue, type="ship", policy="aging")
    async def ship(n: int) -> None:
        seen.append((n, app.current.type, app.current.headers["trace"]))

    async with app:
        if isinstance(caller, Blocking):
            await caller.run(ship.sync.enqueue, 7, connection=caller.connection)
        else:
            await ship.enqueue(7, connection=caller.connection)
        await caller.commit()
        await app.run_until_idle()
    assert seen == [(7, "ship", "t1")]


async def test_an_error_of_a_failed_transaction_says_what_to_do(queue: str, app: App, caller: Caller) -> None:
    with pytest.raises(Exception):  # noqa: B017 - each driver has its own
        await caller.execute("SELECT 1 / 0")
    with pytest.raises(Exception) as caught:
        await caller.enqueue(app, queue, 1)
    assert "roll the transaction back" in "".join(getattr(caught.value, "__notes__", []))
    await caller.rollback()


@pytest.mark.parametrize("name", POSTGRES)
async def test_the_wrong_call_for_a_kind_of_connection_names_the_right_one(
    queue: str, app: App, database: str, name: str
) -> None:
    caller = await POSTGRES[name](database)
    if not isinstance(caller, Blocking):
        with pytest.raises(InvalidInput, match=r"await app\.enqueue"):
            app.sync.enqueue(queue, connection=caller.connection)
    else:
        with pytest.raises(InvalidInput, match=r"app\.sync\.enqueue"):
            await app.enqueue(queue, connection=caller.connection)
    await caller.close()
    with pytest.raises(InvalidInput, match=r"not builtins\.int"):
        await app.enqueue(queue, connection=7)


async def test_another_database_is_refused_and_leaves_the_transaction_usable(
    queue: str, app: App, database: str, server: object
) -> None:
    other = database.rpartition("/")[0] + "/postgres"
    with psycopg.connect(other) as connection:
        unaware = App(database)
        with pytest.raises(InvalidInput, match="outbox"):
            await asyncio.to_thread(unaware.sync.enqueue, queue, connection=connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)
        await asyncio.to_thread(unaware.sync.close)


@pytest.mark.parametrize("name", POSTGRES)
async def test_a_store_that_is_missed_later_is_named_in_a_note(queue: str, app: App, database: str, name: str) -> None:
    """The app has seen its store in the database of another connection, so it does not ask again."""
    caller = await POSTGRES[name](database)
    await caller.enqueue(app, queue, 1)
    await caller.close()
    stranger = await POSTGRES[name](database.rpartition("/")[0] + "/postgres")
    with pytest.raises(Exception) as caught:
        await stranger.enqueue(app, queue, 1)
    assert "Connect to that of the app's store" in "".join(getattr(caught.value, "__notes__", []))
    await stranger.close()


def test_the_first_use_makes_the_schema(queue: str, database: str) -> None:
    app = App(f"{database}?schema=new")
    with psycopg.connect(database) as connection:
        told = app.sync.enqueue(queue, 1, connection=connection)
    assert app.sync.find(told.id) is not None
    app.sync.close()


async def test_follow_ups_and_nodes_take_no_connection(queue: str, app: App) -> None:
    with pytest.raises(InvalidInput, match="stored later"):
        app.new_job(queue, 1, {"connection": object()})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(InvalidInput, match="stored later"):
        app.flow("ship").add(queue, 1, connection=object())  # type: ignore[call-arg]
