"""A store, worker processes and people before it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from accoda import Store, open_storage
from proof.chaos.demand.settings import Line, Settings, read_lines
from proof.chaos.fleet import python_path
from proof.servers.postgres import PostgresServer
from proof.servers.redis import ClusterSet, RedisServer, SentinelSet
from proof.servers.tarantool import TarantoolServer

SERVERS: dict[str, Callable[[], Any]] = {
    "redis": RedisServer,
    "redis-cluster": ClusterSet,
    "redis-sentinel": SentinelSet,
    "postgres": PostgresServer,
    "tarantool": TarantoolServer,
}
STORAGES = ("sqlite", *SERVERS)
QUEUES = ("deals", "deals.deliver")
WORKER = ("-m", "accoda", "worker", "proof.chaos.demand.app:app", "--no-manager", "-c", "3", "--log-level", "WARNING")
PEOPLE = ("-m", "proof.chaos.demand.people")


class Stage:
    """Starts the processes of one run, and reads what they wrote."""

    def __init__(self, url: str, store: Store, settings: Settings) -> None:
        self.url = url
        self.store = store
        self.settings = settings
        self.errors = Path(settings.folder) / "errors"
        self._processes: list[Process] = []

    async def worker(self) -> Process:
        return await self._start(WORKER, self.settings)

    async def people(self, number: int, **changes: Any) -> Process:
        """A process full of waiters that are connected and wait for the start."""
        settings = msgspec.structs.replace(self.settings, name=f"people{number}", **changes)
        process = await self._start(PEOPLE, settings)
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"people {number} did not come: {self.errors.read_text()[-2000:]}")
        return process

    async def send(self, people: Sequence[Process]) -> None:
        """Let them all begin, and wait until they have ended."""
        for process in people:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
        if any(await asyncio.gather(*(process.wait() for process in people))):
            raise RuntimeError(f"people failed: {self.errors.read_text()[-2000:]}")

    def lines(self, *what: str) -> list[Line]:
        return [line for line in read_lines(self.settings.lines) if not what or line.what in what]

    async def left(self) -> int:
        """Fetches and deliveries that are still to be made."""
        queues = (await self.store.stats()).queues
        found = [queues[name] for name in QUEUES if name in queues]
        return sum(queue.ready + queue.delayed + queue.taken for queue in found)

    async def fetches(self) -> int:
        """Fetches that have not ended."""
        queue = (await self.store.stats()).queues.get(QUEUES[0])
        return 0 if queue is None else queue.ready + queue.delayed + queue.taken

    async def until_served(self, patience: float = 90.0) -> bool:
        """Until nothing is left to do; False: it takes too long."""
        try:
            async with asyncio.timeout(patience):
                while await self.left() or await self.left():  # twice: figures of two queues need not be of one moment
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _start(self, arguments: tuple[str, ...], settings: Settings) -> Process:
        environment = {
            **os.environ,
            **settings.environment(),
            "ACCODA_URL": self.url,
            "PYTHONPATH": python_path(),
        }
        with self.errors.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdin=PIPE, stdout=PIPE, stderr=errors, env=environment,
                cwd=settings.folder, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process


@asynccontextmanager
async def open_stage(url: str, **options: Any) -> AsyncIterator[Stage]:
    """A stage before a store that is there, in a folder of its own."""
    folder = tempfile.mkdtemp(prefix="accoda-demand-")
    try:
        async with await open_storage(url) as store:
            stage = Stage(url, store, Settings(folder=folder, **options))
            try:
                yield stage
            finally:
                await stage.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def open_place(storage: str) -> AsyncIterator[str]:
    """Start what a storage needs, give its URL, and end it afterwards."""
    if storage == "sqlite":
        with tempfile.TemporaryDirectory(prefix="accoda-demand-") as folder:
            yield f"sqlite:///{folder}/jobs.db"
        return
    server = SERVERS[storage]()
    await asyncio.to_thread(server.start)
    try:
        yield durable(storage, server.url)
    finally:
        await asyncio.to_thread(server.close)


def durable(storage: str, url: str) -> str:
    """Where a fail-over may come at any time, a replica must have a write before it is acknowledged."""
    return f"{url}{'&' if '?' in url else '?'}wait_replicas=1" if storage == "redis-sentinel" else url
