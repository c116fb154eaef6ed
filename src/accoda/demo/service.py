"""The HTTP API beside the demo, on the same file, with a worker and two queues of its own to try."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from accoda.app import App
from accoda.runtime.worker import Worker, WorkerOptions

PORT = 8000
"""Where the API is, unless somebody is there already."""


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
async def service(url: str) -> AsyncIterator[str]:
    """Serve the API and run a worker for its queues meanwhile; gives the address."""
    app = demo_app(url)
    worker = Worker(app, WorkerOptions(name="demo", managed=False))
    await worker.init()
    working = asyncio.create_task(worker.run())
    try:
        with _serving(app) as address:
            yield address
    finally:
        worker.shutdown()
        await working
        await app.close()


@contextmanager
def _serving(app: App) -> Iterator[str]:
    """The server has a thread and an event loop of its own: the demo's signals are the demo's."""
    from accoda.http import create_service
    from accoda.http.server import Server, configuration, leave_of

    listener = _listen(PORT)
    host, port = listener.getsockname()
    service = create_service(app)
    started = threading.Event()
    server = Server(configuration(service), leave=leave_of(service), started=started.set)
    thread = threading.Thread(target=server.run, args=([listener],), name="accoda-demo-http", daemon=True)
    thread.start()
    started.wait(10)
    try:
        yield f"http://{host}:{port}"
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
