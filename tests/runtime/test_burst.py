"""A burst does all that can be done now: what flows, schedules and an outbox bring is part of it."""

import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest

from accoda import App, ManualClock, Worker, WorkerOptions


async def burst(app: App, *, system_jobs: bool = True) -> int:
    worker = Worker(app, WorkerOptions(burst=True, managed=False, system_jobs=system_jobs))
    await worker.run()
    return worker.jobs_run


async def test_a_flow_goes_on_to_its_end() -> None:
    app, ran = App("memory://"), list[str]()

    @app.handler("steps")
    async def step(name: str) -> None:
        ran.append(name)

    flow = app.flow("order")
    first = flow.add(step, "first")
    second = flow.add(step, "second", after=first)
    flow.add(step, "third", after=second)
    info = await flow.start()
    assert await burst(app) == 3
    assert ran == ["first", "second", "third"]
    assert (await app.flows.get(info.id)).state == "done"


async def test_ticks_that_are_due_are_run() -> None:
    clock, ran = ManualClock(), list[int]()
    app = App("memory://", clock=clock)

    @app.every("5m")
    async def tick() -> None:
        ran.append(clock.now())

    await burst(app)  # stores the schedule
    clock.advance(600)
    before = len(ran)
    await burst(app)
    assert len(ran) == before + 1


async def test_without_system_jobs_they_are_left_to_others() -> None:
    app = App("memory://")

    @app.handler("steps")
    async def step(name: str) -> None: ...

    flow = app.flow("order")
    flow.add(step, "first")
    await flow.start()
    assert await burst(app, system_jobs=False) == 0


async def test_what_is_in_the_outbox_is_run(tmp_path: Path) -> None:
    ran: list[int] = []
    async with App(f"sqlite:///{tmp_path}/jobs.db", outbox=f"sqlite:///{tmp_path}/shop.db") as app:

        @app.handler("orders")
        def order(n: int) -> None:
            ran.append(n)

        connection = sqlite3.connect(tmp_path / "shop.db", check_same_thread=False)
        connection.execute("CREATE TABLE orders (id INTEGER)")
        await burst(app)  # makes the table
        await asyncio.to_thread(order.sync.enqueue, 17, connection=connection)
        connection.commit()
        connection.close()
        assert await burst(app) == 1
        assert ran == [17]


async def test_one_that_fails_does_not_keep_it_from_ending(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with App("memory://", outbox=f"sqlite:///{tmp_path}/nowhere/shop.db") as app:

        @app.handler("steps")
        async def step(name: str) -> None: ...

        flow = app.flow("order")
        flow.add(step, "second", after=flow.add(step, "first"))
        await flow.start()
        with caplog.at_level(logging.ERROR):
            assert await burst(app) == 2
    assert "the system jobs of accoda.outbox are left to other processes" in caplog.text
