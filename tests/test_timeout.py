"""How long a producer's call waits for a store that is away: `?timeout=` in its URL."""

import asyncio
import time
from pathlib import Path

import apsw
import pytest
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

from accoda import App, InvalidInput, StorageUnavailable, open_storage
from accoda.storage.open import read_url, split_timeout


@pytest.mark.parametrize(
    ("url", "bare", "timeout"),
    [
        ("memory://", "memory://", None),
        ("redis://host/0?timeout=2", "redis://host/0", 2.0),
        ("postgres://u:p%40@h/db?pool=3&timeout=0.5&schema=x", "postgres://u:p%40@h/db?pool=3&schema=x", 0.5),
        ("sqlite:///a.db?timeout=1&durability=full", "sqlite:///a.db?durability=full", 1.0),
    ],
)
def test_it_is_taken_out_of_any_url(url: str, bare: str, timeout: float | None) -> None:
    assert split_timeout(url) == (bare, timeout)
    assert App(url).connections.timeout == (timeout or 5.0)


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "3601"])
def test_another_value_is_refused_when_the_app_is_made(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"url: option timeout must be a number of seconds from 0\.1 to 3600"):
        App(f"memory://?timeout={value}")


def test_postgres_is_postgresql() -> None:
    assert read_url("postgres://localhost/jobs").scheme == read_url("postgresql://localhost/jobs").scheme


async def test_a_file_that_another_process_locks_is_waited_for_that_long(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path}/jobs.db?timeout=0.2") as app:
        await app.enqueue("a", 1)
        other = apsw.Connection(str(tmp_path / "jobs.db"))
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(StorageUnavailable, match=r"stayed locked by another process.*nothing was changed"):
            await app.enqueue("a", 2)
        assert time.monotonic() - started < 30  # not the minute that a worker waits
        other.execute("ROLLBACK")
        other.close()
        assert (await app.enqueue("a", 3)).id == 2


async def test_a_server_that_is_gone_is_waited_for_that_long() -> None:
    with need(RedisServer) as server:
        async with App(f"{server.url}?timeout=0.2") as app:
            await app.enqueue("a", 1)
            store = await open_storage(f"{server.url}?timeout=0.2")
            server.kill()
            for call in (app.enqueue("a", 2), app.find(1), store.stats()):
                with pytest.raises(StorageUnavailable):
                    await call
            await store.close()


async def test_a_call_of_a_running_job_insists_like_its_worker(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path}/jobs.db?timeout=0.5") as app:

        @app.handler("a", max_attempts=1)
        async def locked(n: int) -> None:
            other = apsw.Connection(str(tmp_path / "jobs.db"))
            other.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(1, other.close)
            await app.enqueue("b", n)

        await locked.enqueue(7)
        await app.run_until_idle()
        assert len(await app.storage.browse("b", "ready")) == 1
