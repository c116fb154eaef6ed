"""A server that goes away is told of soon, also while nothing is done but to wait; and then it goes on by itself."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from proof.servers.postgres import PostgresServer
from proof.servers.process import Process
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

from accoda import App, Worker, WorkerOptions, open_storage
from accoda.model import NewJob
from accoda.storage.common.reconnecting import TELL_EVERY, OutageLog, limited_patience

SOON = 10.0  # seconds: a busy machine's two. Patience is 30, and was silent
SERVERS: dict[str, Callable[[], Process]] = {
    "Redis": lambda: RedisServer("always"),
    "PostgreSQL": PostgresServer,
    "Tarantool": TarantoolServer,
}


@contextmanager
def warnings(logger: str) -> Iterator["asyncio.Queue[str]"]:
    """What this logger warns of, as it comes."""
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[str] = asyncio.Queue()

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                loop.call_soon_threadsafe(heard.put_nowait, record.getMessage())

    hearing = Hearing()
    logging.getLogger(logger).addHandler(hearing)
    try:
        yield heard
    finally:
        logging.getLogger(logger).removeHandler(hearing)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_wait_tells_of_a_killed_server_within_seconds_and_goes_on(name: str) -> None:
    with need(SERVERS[name]) as server:
        async with await open_storage(server.url) as store:  # type: ignore[attr-defined]
            assert not await store.wait(["q"], 0)
            waiting = asyncio.create_task(store.wait(["q"], 60))
            await asyncio.sleep(0.2)  # it sleeps
            with warnings("accoda.storage") as heard:
                server.kill()
                async with asyncio.timeout(SOON):
                    told = await heard.get()
            assert told.startswith(f"{name} is not available, trying again: ")
            assert not waiting.done()
            await asyncio.to_thread(server.start)
            await store.enqueue([NewJob("q")])
            async with asyncio.timeout(SOON):
                assert await waiting


async def test_an_idle_worker_tells_of_a_killed_redis_within_seconds_and_goes_on() -> None:
    with need(lambda: RedisServer("always")) as server:
        app = App(server.url)
        ran: asyncio.Queue[int] = asyncio.Queue()

        @app.handler("numbers")
        async def numbers(number: int) -> None:
            ran.put_nowait(number)

        worker = Worker(app, WorkerOptions(managed=False))
        working = asyncio.create_task(worker.run())
        await app.enqueue("numbers", 1)
        assert await ran.get() == 1
        with warnings("accoda") as heard:
            server.kill()
            async with asyncio.timeout(SOON):
                assert (await heard.get()).startswith("Redis is not available, trying again: 127.0.0.1:")
        await asyncio.to_thread(server.start)
        await app.enqueue("numbers", 2)
        async with asyncio.timeout(SOON):
            assert await ran.get() == 2
        worker.shutdown()
        await working
        await app.close()


async def test_an_outage_is_told_of_once_in_a_while_and_not_to_callers_with_limited_patience(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = asyncio.get_running_loop().time()
    log = OutageLog("Redis")
    log.note(now, OSError("refused"))  # it may be back in a moment
    with limited_patience(5.0):
        log.note(now - 9.0, OSError("refused"))
    assert caplog.messages == []
    for since in (now - 9.0, now - TELL_EVERY):
        log.note(since, OSError("refused"))
    assert caplog.messages == ["Redis is not available, trying again: refused"]
