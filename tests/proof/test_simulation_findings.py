"""What the simulation found, each as a test of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from accoda import App
from accoda.connections import Connections
from accoda.errors import StorageUnavailable
from accoda.model import NewJob, Outcome, Refused
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.storage.observed import Observed
from accoda.storage.protocol import Store


class Deaf(Observed):
    """A connection over which no settle gets through."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, lambda call: None)
        self.tried = asyncio.Event()

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        self.tried.set()
        raise StorageUnavailable("the connection is stuck")


class Unlucky(Connections):
    """The first connection is deaf; the attempts in `failing` to open another fail."""

    def __init__(self, url: str, failing: Sequence[int] = ()) -> None:
        super().__init__(url)
        self.failing = failing
        self.count = 0
        self.deaf: Deaf | None = None

    async def open(self) -> Store:
        self.count += 1
        if self.count in self.failing:
            raise StorageUnavailable("no answer")
        store = await super().open()
        if self.deaf is None:
            self.deaf = Deaf(store)
            return self.deaf
        return store


async def test_outcomes_are_settled_over_the_connection_that_was_made_since(tmp_path: Path) -> None:
    """A processor repeated its settle on the store that it had begun with, which was closed by then, for ever."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    connections = app.connections = Unlucky(app.url)

    @app.handler("mail")
    async def mail(number: int) -> None: ...

    worker = Worker(app, WorkerOptions(managed=False))
    await worker.init()
    assert connections.deaf is not None
    running = asyncio.create_task(worker.run())
    await app.enqueue("mail", 1)
    await asyncio.wait_for(connections.deaf.tried.wait(), 10)
    await worker._reconnect()
    async with asyncio.timeout(10):
        while (await app.storage.stats()).queues["mail"].done == 0:
            await asyncio.sleep(0.01)
    worker.shutdown()
    await running
    await app.close()


async def test_a_failed_attempt_to_connect_anew_leaves_the_old_connection_open(tmp_path: Path) -> None:
    """The old one was closed first, so the worker was left with a closed store, and never tried again."""
    connections = Unlucky(f"sqlite:///{tmp_path}/jobs.db", failing=(2,))
    old = await connections.get()
    with pytest.raises(StorageUnavailable, match="no answer"):
        await connections.reopen()
    assert await connections.get() is old
    assert (await old.enqueue([NewJob("mail")]))[0].what == "created"
    new = await connections.reopen()
    assert new is not old
    assert (await new.stats()).queues["mail"].ready == 1
    await connections.close()
