"""The life of an app inside a web application: opened before the first request, closed after the last one."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from types import FrameType, TracebackType
from typing import Any

from starlette.requests import HTTPConnection

from accoda.app import App
from accoda.asgi.mounting import check_app, mounts_of
from accoda.asgi.watching import streams
from accoda.errors import InvalidInput
from accoda.runtime.worker import Worker, WorkerOptions

log = logging.getLogger("accoda.asgi")

STATE = "accoda"
Running = AbstractAsyncContextManager[Mapping[str, Any]]


class Lifespan:
    """What `lifespan` gives: it is called by a web application, or entered in the application's own lifespan."""

    def __init__(self, app: App, worker: WorkerOptions | None) -> None:
        self._app = app
        self._worker = worker
        self._entered: Running | None = None

    def __call__(self, web: object = None, /) -> Running:
        return _running(self._app, self._worker)

    async def __aenter__(self) -> Mapping[str, Any]:
        self._entered = self()
        return await self._entered.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._entered is not None
        return await self._entered.__aexit__(kind, error, trace)


def lifespan(app: App, *, worker: bool | WorkerOptions = False) -> Lifespan:
    """Open the app's store with a web application, and close it at its end: `FastAPI(lifespan=lifespan(app))`.

    In a lifespan of your own: `async with lifespan(app) as state: yield state`. `worker` runs the handlers in the web
    process, too: good for development, where one process is enough.
    """
    check_app(app)
    if not isinstance(worker, bool | WorkerOptions):
        raise InvalidInput("worker", f'must be True or WorkerOptions(queues=("emails",)), not {worker!r:.60}')
    options = WorkerOptions() if worker is True else worker or None
    return Lifespan(app, options)


def get_app(connection: HTTPConnection) -> App:
    """The app of the web application that has received this request; a FastAPI dependency (see `Jobs`)."""
    app = getattr(connection.state, STATE, None)
    if not isinstance(app, App):
        raise InvalidInput(
            "lifespan",
            "the web application did not open an app: FastAPI(lifespan=accoda.asgi.lifespan(app)); a lifespan of your "
            "own has to yield the state that `async with accoda.asgi.lifespan(app) as state` gives",
        )
    return app


@asynccontextmanager
async def _running(app: App, worker: WorkerOptions | None) -> AsyncIterator[Mapping[str, Any]]:
    mounts, polls = mounts_of(app), streams()

    def leave() -> None:
        polls.close()
        for mounted in mounts:
            mounted.leave()

    async with AsyncExitStack() as stack:
        stack.push_async_callback(app.close)
        await app.connections.get()
        polls.open()
        for mounted in mounts:
            mounted.open()
            stack.push_async_callback(mounted.close)
        stack.callback(leave)
        stack.enter_context(_before_shutdown(leave))
        if worker is not None:
            await stack.enter_async_context(_working(app, worker))
        yield {STATE: app}


@asynccontextmanager
async def _working(app: App, options: WorkerOptions) -> AsyncIterator[None]:
    worker = Worker(app, options)
    await worker.init()
    running = asyncio.create_task(worker.run(), name="accoda-worker")
    running.add_done_callback(_tell_failure)
    try:
        yield
    finally:
        await worker.graceful_stop()
        await asyncio.wait([running])


def _tell_failure(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        log.error("the worker in the web process has ended; jobs wait for another one", exc_info=error)


@contextmanager
def _before_shutdown(leave: Callable[[], None]) -> Iterator[None]:
    """Call `leave` when the process is told to stop.

    A server ends the lifespan only after the last request, and a stream of events is a request that does not end: the
    server would wait for it for ever. The server's own handlers stand already when the lifespan begins, so these are
    put in front of them, and taken away again. Elsewhere than in the main thread there are no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    ours = {
        number: (_leaving_first(loop, leave, before), before)
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(before := signal.getsignal(number))
    }
    for number, (handler, _) in ours.items():
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, (handler, before) in ours.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, before)


def _leaving_first(
    loop: asyncio.AbstractEventLoop, leave: Callable[[], None], before: Callable[[int, FrameType | None], Any]
) -> Callable[[int, FrameType | None], None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        # A signal comes between any two steps of the loop: what it asks for has to wait for the loop's next turn.
        if not loop.is_closed():
            loop.call_soon_threadsafe(leave)
        before(number, frame)

    return on_signal
