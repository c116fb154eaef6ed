"""The disk of the server is full, slow, or says that it failed."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from proof.chaos.faults import Target
from proof.chaos.faults.clients import Clients
from proof.chaos.faults.disk import disk_faults
from proof.servers.disk import Disk
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

from accoda import NewJob, open_storage
from accoda.errors import StorageError, StorageFull, StorageUnavailable
from accoda.storage.protocol import Store

HANG = 60.0  # seconds; nothing here may take so long, unless a call hangs


@pytest.fixture
def struck(disk_target: Target) -> Iterator[Target]:
    """A target whose disk and server are well again when the test is over."""
    assert disk_target.disk is not None and disk_target.server is not None
    try:
        yield disk_target
    finally:
        disk_target.disk.well()
        disk_target.server.recover()


@pytest.mark.parametrize("name", ["disk full", "fsync fails", "fsync slow"])
async def test_clients_go_on_when_it_is_over_and_nothing_acknowledged_is_lost(
    struck: Target, store: Store, queue: str, name: str
) -> None:
    (fault,) = (each for each in disk_faults(struck) if each.name == name)
    clients = Clients(store, queue=queue)
    async with asyncio.timeout(HANG):
        async with clients.running():
            await replace(fault, longest=0.8).strike(random.Random(2))
            await clients.go_on()
        await clients.finish()
    expected: tuple[type[StorageError], ...] = (StorageUnavailable, StorageFull)
    assert all(isinstance(error, expected) for error in clients.errors), clients.errors
    assert name != "fsync slow" or not clients.errors, "slow is no error"


async def test_what_was_acknowledged_survives_a_kill_in_the_middle_of_it(
    struck: Target, store: Store, queue: str
) -> None:
    assert struck.disk is not None and struck.server is not None
    clients = Clients(store, queue=queue)
    async with asyncio.timeout(HANG):
        async with clients.running():
            struck.disk.full()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(struck.server.kill)
            struck.disk.well()
            await asyncio.to_thread(struck.server.start)
            await clients.go_on()
        await clients.finish()


@pytest.mark.parametrize(
    ("kind", "words"), [("postgres", "no room left.*free some"), ("tarantool", "cannot write its log.*free space")]
)
async def test_a_full_disk_is_called_by_its_name_and_the_server_goes_on_by_itself(
    with_own_disk: Callable[[str], Target], queue: str, kind: str, words: str
) -> None:
    target = with_own_disk(kind)
    assert target.disk is not None and target.server is not None
    async with asyncio.timeout(HANG), await open_storage(target.url) as store:
        before = target.server.pid
        stored = 0
        target.disk.full()
        try:
            with pytest.raises(StorageFull, match=f"(?s){words}"):
                for _ in range(200):  # PostgreSQL fills the pages that it has first
                    stored += len(await store.enqueue([NewJob(queue, b"x" * 5_000)] * 5))
        finally:
            target.disk.well()
        stored += len(await store.enqueue([NewJob(queue)]))
        assert (await store.stats()).queues[queue].ready == stored
        assert target.server.pid == before and target.server.is_alive


async def test_redis_that_syncs_each_second_refuses_writes_while_its_disk_is_full_and_goes_on_by_itself(
    queue: str,
) -> None:
    disk = need(Disk)
    with need(lambda: RedisServer("everysec", disk=disk)) as server:
        async with asyncio.timeout(HANG), await open_storage(server.url) as store:
            stored = len(await store.enqueue([NewJob(queue)]))
            disk.full()
            with pytest.raises(StorageFull, match=r"disk.*free space"):
                for _ in range(20):  # the first is acknowledged before the log is written, as `everysec` promises
                    stored += len(await store.enqueue([NewJob(queue)]))
            with pytest.raises(StorageFull, match=r"disk.*free space"):
                await store.take(queue, 1)
            disk.well()
            while True:
                try:
                    stored += len(await store.enqueue([NewJob(queue)]))
                    break
                except StorageFull:
                    await asyncio.sleep(0.05)  # it tries its log once a second
            assert (await store.stats()).queues[queue].ready == stored
    disk.close()


async def test_redis_that_syncs_always_ends_itself_rather_than_acknowledge_what_it_cannot_store(
    with_own_disk: Callable[[str], Target], queue: str
) -> None:
    target = with_own_disk("redis")
    assert target.disk is not None and target.server is not None
    async with asyncio.timeout(HANG), await open_storage(f"{target.url}?timeout=0.5") as store:
        try:
            (stored,) = await store.enqueue([NewJob(queue)])
            target.disk.broken_sync(once=True)
            with pytest.raises(StorageUnavailable, match="look at the server"):
                await store.enqueue([NewJob(queue)])
            assert not target.server.is_alive
            assert "fsync" in target.server.log.read_text()
        finally:
            target.disk.well()
            target.server.recover()
        assert stored.id in {job.id for job in await store.browse(queue, "ready")}


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Target]:
    """A file of its own, on a disk that fails for processes started with its environment."""
    disk = need(Disk)
    yield Target("sqlite", f"sqlite:///{tmp_path / 'jobs.db'}", disk=disk, environment=disk.environment(tmp_path))
    disk.close()


class TestSqlite:
    """The disk of the worker itself."""

    async def test_a_full_disk_changes_nothing_and_the_same_storage_goes_on(self, sqlite: Target) -> None:
        await self._strike(sqlite, Disk.full, "StorageFull", "no space left.*free some", made=0)

    async def test_a_failed_sync_is_not_acknowledged_and_the_same_storage_goes_on(self, sqlite: Target) -> None:
        await self._strike(sqlite, Disk.broken_sync, "Storage", "disk", made=1)  # the others are refused before that

    async def test_a_slow_disk_is_waited_for(self, sqlite: Target) -> None:
        target = sqlite
        assert target.disk is not None
        async with asyncio.timeout(HANG), SqliteClient(target) as client:
            target.disk.slow_sync(0.1)
            try:
                assert (await client.ask("enqueue")).startswith("ok")
            finally:
                target.disk.well()
            assert (await client.ask("work")).startswith("ok")

    async def _strike(
        self, target: Target, begin: Callable[[Disk], None], error: str, words: str, *, made: int
    ) -> None:
        assert target.disk is not None
        async with asyncio.timeout(HANG), SqliteClient(target) as client:
            acknowledged = (await client.ask("enqueue")).split()[1:]
            begin(target.disk)
            try:
                answers = [await client.ask("enqueue") for _ in range(3)]
            finally:
                target.disk.well()
            assert answers[-1].startswith(error), answers
            assert re.search(words, answers[-1]), answers[-1]
            acknowledged += [id for answer in answers if answer.startswith("ok") for id in answer.split()[1:]]
            assert (await client.ask("enqueue")).startswith("ok"), "it goes on by itself"
            client.process.send_signal(signal.SIGKILL)
            await client.process.wait()
        async with SqliteClient(target) as client:
            found = (await client.ask("work")).split()[1:]
            assert set(acknowledged) <= set(found)
            unsure = sum("the change was made" in answer for answer in answers)
            assert unsure == made
            assert len(found) == len(acknowledged) + 20 * (1 + made), "what was refused is not there"


class SqliteClient:
    """A process with the store of the target, on the disk that fails."""

    process: asyncio.subprocess.Process

    def __init__(self, target: Target) -> None:
        self._target = target

    async def ask(self, command: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{command}\n".encode())
        return (await self.process.stdout.readline()).decode().strip()

    async def __aenter__(self) -> SqliteClient:
        self.process = await start_client(self._target)
        assert self.process.stdout is not None
        assert await self.process.stdout.readline() == b"ready\n"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def start_client(target: Target) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    script = Path(__file__).parent / "sqlite_client.py"
    environment = {**os.environ, **target.environment}
    return await asyncio.create_subprocess_exec(
        sys.executable, str(script), target.url, stdin=pipe, stdout=pipe, env=environment
    )
