"""The dashboard and the HTTP API beside the demo, on the same file, with a worker and queues of its own to try."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

from examples.demo.deals import RandomRequests, add_deals
from msgspec import Struct

from accoda.app import App
from accoda.clock import SystemClock
from accoda.runtime.worker import Worker, WorkerOptions

PORT = 8000
"""The port of the dashboard, unless it is taken."""
REQUEST_EVERY = 0.6
LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})


class Address(Struct):
    """Where the dashboard and the API are, and how many changes were made there."""

    url: str
    changes: int = 0


def demo_app(url: str) -> App:
    """A queue to try over HTTP, and one that a schedule fills."""
    app = App(url)

    @app.handler("hello", keep_for=600)
    async def hello(name: str) -> str:
        return f"hello, {name}"

    @app.every("5s", queue="clock", keep_for=600)
    async def tell_the_time() -> int | None:
        return app.current.tick

    return app


@asynccontextmanager
async def service(url: str) -> AsyncIterator[Address]:
    """Serve the dashboard, run a worker for its queues, and make requests for deals meanwhile."""
    app = demo_app(url)
    requests = RandomRequests(add_deals(app, Random(7)), SystemClock(), Random(8))
    worker = Worker(app, WorkerOptions(name="demo", managed=False))
    await worker.init()
    working = asyncio.create_task(worker.run())
    requesting = asyncio.create_task(_request(requests))
    try:
        with _serving(app) as address:
            yield address
    finally:
        requesting.cancel()
        worker.shutdown()
        await asyncio.gather(working, requesting, return_exceptions=True)
        await app.close()


async def _request(requests: RandomRequests) -> None:
    while True:
        await requests.run_once()
        await asyncio.sleep(REQUEST_EVERY)


class _Counting:
    """Counts the requests that change something: the demo's totals do not include what people do to its jobs."""

    def __init__(self, service: Any, address: Address) -> None:
        self.inner = service
        self._address = address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] not in LOOKS:
            self._address.changes += 1
        await self.inner(scope, receive, send)


@contextmanager
def _serving(app: App) -> Iterator[Address]:
    """Serve in a thread with an event loop of its own, so that the demo keeps its signal handlers."""
    from accoda.http.server import Server, configuration, leave_of
    from accoda.service import create_service

    listener = _listen(PORT)
    host, port = listener.getsockname()
    address = Address(f"http://{host}:{port}")
    service = _Counting(create_service(app), address)
    started = threading.Event()
    server = Server(configuration(service), leave=leave_of(service), started=started.set)
    thread = threading.Thread(target=server.run, args=([listener],), name="accoda-demo-http", daemon=True)
    thread.start()
    started.wait(10)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(5)
        listener.close()


def _listen(port: int) -> socket.socket:
    """Listen on that port, or on any that is free."""
    # Not `create_server`: asyncio sets TCP_NODELAY only on sockets with an explicit protocol, and without it answers
    # are slow.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    return listener
