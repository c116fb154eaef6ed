"""The dashboard and the HTTP API beside the demo, on the same file, with a worker and queues of its own to try."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

from msgspec import Struct

from accoda.app import App
from accoda.clock import SystemClock
from accoda.demo.deals import Crowd, add_deals
from accoda.runtime.worker import Worker, WorkerOptions

PORT = 8000
"""Where the dashboard is, unless somebody is there already."""
ASKED_EVERY = 0.6
LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})


class Address(Struct):
    """Where the dashboard and the API are, and how many changes somebody made there."""

    url: str
    changes: int = 0


def demo_app(url: str) -> App:
    """A queue that answers whoever calls it over HTTP, and one that a schedule fills."""
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
    """Serve the dashboard, run a worker for its queues and let a crowd ask for deals meanwhile."""
    app = demo_app(url)
    crowd = Crowd(add_deals(app, Random(7)), SystemClock(), Random(8))
    worker = Worker(app, WorkerOptions(name="demo", managed=False))
    await worker.init()
    working = asyncio.create_task(worker.run())
    asking = asyncio.create_task(_ask(crowd))
    try:
        with _serving(app) as address:
            yield address
    finally:
        asking.cancel()
        worker.shutdown()
        await asyncio.gather(working, asking, return_exceptions=True)
        await app.close()


async def _ask(crowd: Crowd) -> None:
    while True:
        await crowd.run_once()
        await asyncio.sleep(ASKED_EVERY)


class _Counting:
    """Counts the requests that change something: what people do to the demo's jobs is not in its books."""

    def __init__(self, service: Any, address: Address) -> None:
        self.inner = service
        self._address = address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] not in LOOKS:
            self._address.changes += 1
        await self.inner(scope, receive, send)


@contextmanager
def _serving(app: App) -> Iterator[Address]:
    """The server has a thread and an event loop of its own: the demo's signals are the demo's."""
    from accoda.http import create_service
    from accoda.http.server import Server, configuration, leave_of

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
    """That port of this machine, or any other that is free."""
    # Not `create_server`: asyncio sets TCP_NODELAY on sockets that are TCP by name alone, and answers are slow without.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    return listener
