"""The other side of `process.py`: what runs in a child process.

The main thread runs handlers. Another one reads what the worker says; when the worker is gone, however it ended, it
ends the process at once, in the middle of a handler too: its result would be lost.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from importlib import import_module
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Unpack

from accoda.budget.report import BudgetReporter
from accoda.enqueue import EnqueueOptions
from accoda.limits import set_limits
from accoda.masking import Mask
from accoda.model import Job, NewJob
from accoda.retry import Failed, Result, finished
from accoda.runtime.batch import Batch, Running, current, current_batch
from accoda.runtime.envelope_outcome import mask_for
from accoda.runtime.events import HandlerStats
from accoda.runtime.handler import Handler
from accoda.runtime.logs.setup import configure
from accoda.runtime.runners import wire
from accoda.runtime.runners.base import invoker
from accoda.runtime.runners.raised import pack

Tell = Callable[[wire.ToWorker], None]
LINGER = 5.0
"""Seconds that the process gets to end by itself when it has nothing to do and is no longer wanted."""


class Told(dict[int, Result]):
    """Results that are told to the worker the moment they are set, so that they survive this process."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def __setitem__(self, id: int, result: Result) -> None:
        super().__setitem__(id, result)
        self._tell(wire.said(id, result))


class RemoteBatch(Batch[Any]):
    """A batch in a child process: what is said of it is said to the worker."""

    def __init__(self, handler: Handler[Any, Any, Any], work: wire.Work, tell: Tell) -> None:
        payloads = [handler.codec.open(job) for job in work.jobs]
        super().__init__(work.queue, work.jobs, payloads, handler.app.new_job)
        self.results: dict[int, Result] = Told(tell)
        self.deadline = work.deadline
        self._tell = tell
        self._handler = handler
        if handler.options.budgets:
            self.reporter = BudgetReporter(handler.options.budgets, lambda report: tell(wire.Reported(report)))

    def enqueue(self, queue: str, payload: object = None, **options: Unpack[EnqueueOptions]) -> None:
        self._tell(wire.Follow(None, self._make_job(queue, payload, options)))

    def then(self, job: Running[Any], follow_up: NewJob) -> None:
        self._tell(wire.Follow(job.id, follow_up))

    def mask(self, job: Job) -> Mask:
        return mask_for(job, self._handler.options.secret, self._handler.codec)


class Inbox:
    """What the worker says, read by a thread of its own."""

    def __init__(self, connection: Connection, parent: int) -> None:
        self._connection = connection
        self._parent = parent
        self._work: SimpleQueue[wire.Work | None] = SimpleQueue()
        self._batch: RemoteBatch | None = None
        self._news = wire.News(False, [])
        self._busy = False

    def start(self) -> None:
        threading.Thread(target=self._read, name="accoda-inbox", daemon=True).start()

    def next(self) -> wire.Work | None:
        """The next batch; None: there will be none."""
        self._batch = None
        self._busy = False
        work = self._work.get()
        self._busy = True
        return work

    def watch(self, batch: RemoteBatch) -> None:
        """Apply notes to this batch from now on; those that came before too."""
        # The batch is shown first and the note read after it; `_read` does it the other way round. None is overlooked.
        self._batch = batch
        self._apply(batch)

    def _apply(self, batch: RemoteBatch) -> None:
        batch.stopping = self._news.stopping
        batch.lost = set(self._news.lost)

    def _read(self) -> None:
        try:
            while True:
                # The end of the stream tells that the worker is gone; but a process that it forked may hold the
                # stream open, so the parent's number is looked at as well.
                while not self._connection.poll(1.0):
                    if os.getppid() != self._parent:
                        raise EOFError
                message = wire.decode_in_child(self._connection.recv_bytes())
                if isinstance(message, wire.Work):
                    self._news = wire.News(False, [])
                    self._work.put(message)
                elif isinstance(message, wire.News):
                    self._news = message
                    if self._batch is not None:
                        self._apply(self._batch)
        except (EOFError, OSError, wire.Garbled):
            pass
        if not self._busy:
            self._work.put(None)
            time.sleep(LINGER)
        os._exit(1)


class Child:
    """Runs the batches that come in."""

    def __init__(self, handler: Handler[Any, Any, Any], tell: Tell) -> None:
        self._handler = handler
        self._tell = tell
        self._invoke = invoker(handler)
        self._loop = asyncio.Runner()  # one loop for all jobs, so that the connections of a handler last

    def run(self, batch: RemoteBatch) -> None:
        """Run one batch, and tell what becomes of it."""
        current_batch.set(batch)
        if self._handler.takes_batch:
            self._tell(self._run_whole(batch))
            return
        for job in batch:
            self._run_one(batch, job)
        self._tell(wire.Over())

    def close(self) -> None:
        self._loop.close()

    def _run_whole(self, batch: RemoteBatch) -> wire.Over:
        try:
            value = self._wait_for(self._invoke(batch))
        except BaseException as error:
            return wire.Over(pack(error))
        return wire.Over(None, value if isinstance(value, HandlerStats) else None)

    def _run_one(self, batch: RemoteBatch, job: Running[Any]) -> None:
        try:
            result: Result = finished(copy_context().run(self._call, job))
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: the process goes on
            result = Failed(error)
        # What the handler itself said, through the current job, counts more than how it ended.
        self._tell(wire.said(job.id, batch.results.get(job.id, result)))

    def _call(self, job: Running[Any]) -> object:
        current.set(job)
        return self._wait_for(self._invoke(job.payload))

    def _wait_for(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value
        value, error = self._loop.run(_caught(value), context=copy_context())
        if error is not None:
            raise error
        return value


async def _caught(value: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await value, None
    except BaseException as error:  # raised again outside: SystemExit would break the loop
        return None, error


def main(fd: int, parent: int) -> None:
    """Serve until the worker has no more to do."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the worker decides when its children end
    os.set_inheritable(fd, False)  # programs that a handler starts have no business with it
    connection = Connection(fd)
    hello = wire.decode_in_child(connection.recv_bytes())
    assert isinstance(hello, wire.Hello)
    lock = threading.Lock()

    def tell(message: wire.ToWorker) -> None:
        with lock:  # a handler may speak from threads of its own
            connection.send_bytes(wire.encode(message))

    try:
        sys.path[:] = hello.path
        handler = find_handler(hello.module, hello.name)
        set_limits(**hello.limits)  # after the import, which may set some of its own: the worker's word counts
        if (logs := hello.logs) is not None:
            configure(logs.format, logs.level, jobs=logs.jobs)
    except BaseException:
        tell(wire.Broken(traceback.format_exc(limit=-5)))
        return
    inbox, child = Inbox(connection, parent), Child(handler, tell)
    inbox.start()
    tell(wire.Ready())
    while (work := inbox.next()) is not None:
        batch = RemoteBatch(handler, work, tell)
        inbox.watch(batch)
        tell(wire.Began())
        child.run(batch)
    child.close()


def find_handler(module: str, name: str) -> Handler[Any, Any, Any]:
    """The handler that is called `name` in `module`."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Handler):
        raise TypeError(f"{module}:{name} is a {type(found).__name__}, no handler")
    return found
