"""Flows and requests to a demand are part of a transaction, too: all of them or nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from proof.chaos.transactions.callers import POSTGRES, SQLITE, Blocking, Caller, apsw
from tests.transactions.test_outbox import new_file

from accoda import App, Waiter, chain
from accoda.errors import InvalidInput, NotFound
from accoda.transactions.open import open_table
from accoda.transactions.outbox import read_outbox

WAYS = ["asyncpg", "psycopg", "apsw", "outbox-psycopg", "outbox-sqlite3", "outbox-aiosqlite"]


@pytest_asyncio.fixture(params=WAYS)
async def app_and_caller(
    request: pytest.FixtureRequest, database: str, tmp_path: Path
) -> AsyncIterator[tuple[App, Caller]]:
    way: str = request.param
    if way.startswith("outbox-"):
        driver = way.removeprefix("outbox-")
        outbox = database if driver in POSTGRES else new_file(tmp_path)
        app, caller = App("memory://", outbox=outbox), await (POSTGRES | SQLITE)[driver](outbox)
        async with open_table(read_outbox(outbox)):
            pass  # which makes it
    elif way == "apsw":
        app = App(f"sqlite:///{tmp_path}/jobs.db")
        await app.connections.get()
        caller = await apsw(app.url)
        await caller.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item text)")
        await caller.commit()
    else:
        app, caller = App(database), await POSTGRES[way](database)
    async with app:
        await app.connections.get()
        yield app, caller
        await caller.close()


async def start(app: App, caller: Caller, flow: Any) -> Any:
    await caller.execute("INSERT INTO orders (item) VALUES ('tea')")  # asyncpg begins its transaction here
    if isinstance(caller, Blocking):
        return await caller.run(app.sync.start, flow, connection=caller.connection)
    return await flow.start(connection=caller.connection)


async def test_a_flow_runs_if_and_only_if_the_transaction_commits(
    app_and_caller: tuple[App, Caller], queue: str
) -> None:
    app, caller = app_and_caller
    ran = []

    @app.handler(queue)
    async def step(n: int) -> int:
        ran.append(n)
        return n + 1

    for commits in (False, True):
        flow = app.flow("order", key=f"{queue}-{commits}")
        first = flow.add(step, 1, name="charge")
        flow.add(step, 2, name="ship", after=first)
        info = await start(app, caller, flow)
        assert (info.id, info.state, info.counts) == (f"{queue}-{commits}", "running", {"waiting": 2})
        assert list(info.nodes) == ["charge", "ship"]
        await app.run_until_idle() if app.url.startswith("postgresql") else None
        assert ran == []
        await (caller.commit() if commits else caller.rollback())
        await app.run_until_idle()
    assert ran == [1, 2]
    assert (await app.flows.get(f"{queue}-True")).state == "done"
    with pytest.raises(NotFound):
        await app.flows.get(f"{queue}-False")


async def test_a_flow_with_a_key_that_is_known_is_given_as_it_is(
    app_and_caller: tuple[App, Caller], queue: str
) -> None:
    app, caller = app_and_caller

    @app.handler(queue)
    async def step(n: int) -> None: ...

    flows = [app.flow("order", key=queue) for _ in range(2)]
    for flow in flows:
        flow.add(step, 1)
    await flows[0].start()
    await app.run_until_idle()
    info = await start(app, caller, flows[1])
    assert info.state == ("running" if app.transactions.outbox is not None else "done")
    await caller.commit()
    await app.run_until_idle()
    assert (await app.flows.get(queue)).state == "done"


async def test_a_chain_takes_a_connection(app_and_caller: tuple[App, Caller], queue: str) -> None:
    app, caller = app_and_caller
    ran = []

    @app.handler(queue)
    async def step(n: int) -> int:
        ran.append(n)
        return n + 1

    await start(app, caller, chain(step.job(1), step.job()))
    await caller.commit()
    await app.run_until_idle()
    assert ran == [1, 2]


async def test_a_request_is_served_if_and_only_if_the_transaction_commits(
    app_and_caller: tuple[App, Caller], queue: str
) -> None:
    app, caller = app_and_caller
    deals, served, fetched = app.demand(queue, fresh_for=60), [], []

    @deals.fetch
    async def fetch(key: str) -> str:
        fetched.append(key)
        return key.upper()

    @deals.deliver
    async def deliver(waiter: Waiter[None], result: str) -> None:
        served.append((waiter.id, result))

    async def request(waiter: str) -> str:
        await caller.execute("INSERT INTO orders (item) VALUES ('tea')")
        if isinstance(caller, Blocking):
            return (await caller.run(deals.sync.request, "tea", Waiter(waiter), connection=caller.connection)).what
        return (await deals.request("tea", Waiter(waiter), connection=caller.connection)).what

    in_outbox = app.transactions.outbox is not None
    assert await request("anna") == ("outbox" if in_outbox else "created")
    await caller.rollback()
    await app.run_until_idle()
    assert fetched == served == []
    await request("bob")
    await caller.commit()
    await app.run_until_idle()
    assert (fetched, served) == (["tea"], [("bob", "TEA")])
    assert await request("carla") == "cached"
    await caller.rollback()
    assert await request("dora") == "cached"
    await caller.commit()
    await app.run_until_idle()
    assert (fetched, served) == (["tea"], [("bob", "TEA"), ("dora", "TEA")])


def test_a_demand_has_a_face_without_await() -> None:
    app = App("memory://")
    deals = app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> str:
        return key.upper()

    assert deals.sync.request("tea", Waiter("anna")).what == "created"
    assert deals.sync.withdraw("tea", "anna") == "cancelled"
    app.sync.close()


async def test_a_blocking_connection_for_an_async_start_is_refused(tmp_path: Path) -> None:
    outbox = new_file(tmp_path)
    app = App("memory://", outbox=outbox)
    caller = await SQLITE["sqlite3"](outbox)
    flow = app.flow("order")
    flow.add("orders", 1)
    with pytest.raises(InvalidInput, match=r"app\.sync"):
        await flow.start(connection=caller.connection)
    await caller.close()
