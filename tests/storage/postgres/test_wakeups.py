"""What wakes a worker that waits: a commit, a lock that is gone, or the time."""

import asyncio
from typing import Any

import asyncpg
import pytest

from accoda.model import NewJob
from accoda.storage.postgres import PostgresStorage
from accoda.storage.postgres.client import call_of


@pytest.fixture
def looks(store: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[None]:
    """An entry for each look that has ended."""
    ended: asyncio.Queue[None] = asyncio.Queue()
    fetch = store._client.fetch

    async def noting(function: str, *args: Any, repeat: bool) -> Any:
        answer = await fetch(function, *args, repeat=repeat)
        if function == "wait":
            ended.put_nowait(None)
        return answer

    monkeypatch.setattr(store._client, "fetch", noting)
    return ended


async def lock_job(sql: asyncpg.Connection, schema: str, id: int) -> None:
    """As a rerank does, for as long as the transaction lasts."""
    await sql.execute(f"BEGIN; SELECT FROM {schema}.jobs WHERE id = {id} FOR UPDATE")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_a_job_that_was_locked_is_taken_though_nothing_tells_that_it_is_free(
    store: PostgresStorage,
    schema: str,
    sql: asyncpg.Connection,
    looks: asyncio.Queue[None],
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    monkeypatch.setattr("accoda.storage.common.wakeups.LOOK_EVERY", 600_000)
    (answer,) = await store.enqueue([NewJob("q", b"x")])
    assert not await store.wait(["other"], 0)  # it listens now, so nothing else makes it look
    await looks.get()
    await lock_job(sql, schema, answer.id)
    assert await store.take("q", 1) == await store.take("q", 1) == []
    waiting = asyncio.create_task(store.wait(["q"], 600))
    async with asyncio.timeout(20):
        await looks.get()
        await sql.execute(end)
        assert await waiting
    assert [job.id for job in await store.take("q", 1)] == [answer.id]


async def test_a_lock_that_stays_is_looked_at_less_and_less(
    store: PostgresStorage, schema: str, sql: asyncpg.Connection, looks: asyncio.Queue[None]
) -> None:
    (answer,) = await store.enqueue([NewJob("q", b"x")])
    await lock_job(sql, schema, answer.id)
    takes = 0
    loop = asyncio.get_running_loop()
    until = loop.time() + 1
    while loop.time() < until:
        assert await store.take("q", 1) == []
        takes += 1
        await store.wait(["q"], max(0.0, until - loop.time()))
    await sql.execute("ROLLBACK")
    assert 3 < takes < 20  # it would be a hundred


async def test_a_lost_notification_delays_a_job_by_seconds_only(
    store: PostgresStorage, schema: str, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accoda.storage.common.wakeups.LOOK_EVERY", 1000)
    waiting = asyncio.create_task(store.wait(["q"], 30))
    await store.stats()
    # As from a process that died between its commit and its notification.
    job = ("q", b"", None, None, None, None, None, None, None, None, None, None)
    await sql.fetch(call_of(schema, "enqueue", 4), None, [job], False, [])
    assert await waiting
    assert len(await store.take("q", 1)) == 1


async def test_a_lease_that_is_made_shorter_wakes_earlier(store: PostgresStorage, looks: asyncio.Queue[None]) -> None:
    await store.enqueue([NewJob("q")])
    (job,) = await store.take("q", 1, lease=600)
    waiting = asyncio.create_task(store.wait(["q"], 60))
    await looks.get()
    async with asyncio.timeout(3):  # and not at the next look, five seconds later
        assert await store.extend([job.lease], 0.05) == []
        assert await waiting
    assert len(await store.take("q", 1)) == 1
