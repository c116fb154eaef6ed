"""What an explanation costs the store: a handful of calls, the same for ten jobs and for thousands."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from accoda import App, NewJob, open_storage
from accoda.operations.why import why
from accoda.storage.observed import Observed, Tally
from accoda.storage.protocol import Store

MOST_CALLS = 9
READS = {"look", "stats", "documents", "read"}


class OneStore:
    """Connections that are one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self) -> Store:
        return self._store


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await open_storage("memory://") as store:
        yield store


async def calls(store: Store, id: int) -> dict[str, int]:
    tally = Tally()
    app = App("memory://")
    app.budget("keepa", capacity=20, refill=20, per=60)

    @app.handler("emails", budget="keepa")
    async def send(payload: Any) -> None: ...

    app.connections = OneStore(Observed(store, tally))  # type: ignore[assignment]
    await why(app, id)
    return {verb: total.calls for verb, total in tally.totals.items()}


async def test_a_waiting_job_costs_a_handful_of_calls_however_many_wait(store: Store) -> None:
    made = await store.enqueue([NewJob("emails") for _ in range(10)])
    await store.pause("emails", 1 << 42)
    few = await calls(store, made[5].id)
    for _ in range(5):
        await store.enqueue([NewJob("emails") for _ in range(1000)])
    assert few == await calls(store, made[5].id)
    assert few.keys() <= READS and sum(few.values()) <= MOST_CALLS


def test_the_sync_face_asks_the_same() -> None:
    app = App("memory://")
    id = app.sync.enqueue("emails", 1).id
    assert app.sync.why(id).line == "no worker is running"
    app.sync.close()


async def test_a_job_that_runs_or_has_ended_costs_less(store: Store) -> None:
    made = await store.enqueue([NewJob("emails", key="a")])
    await store.take("emails", 1)
    assert await calls(store, made[0].id) == {"look": 1, "documents": 1}
