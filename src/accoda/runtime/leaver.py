"""Sees to it that a worker process leaves when it is told to, whatever runs in it.

    signal ──grace──► abort ──ABORT──► release from another thread ──RELEASE──► ended by force: 1
       └─── the worker has left ───────► EXIT, or EXIT_FORCED ──► ended by force: 1

So a process is gone within its grace and `forced_end.LEAVE` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from accoda.runtime.forced_end import EXIT, end_now, end_within, within
from accoda.runtime.worker import Worker

ABORT = 2.0
"""Seconds in which handlers that were stopped must have ended, and their jobs be given back, by the worker itself."""
RELEASE = 1.5
"""Seconds in which the lease heartbeat must have given them back, if the worker has not."""
EXIT_FORCED = 1.0
"""Seconds in which the process must end once its worker has left, if its grace is over: `EXIT` if it is not."""
SAME_REQUEST = 0.03
"""Seconds in which a second signal is taken for the first one."""

log = logging.getLogger("accoda.worker")


class Leaver:
    """Follows signals, in a thread of its own: it works while the event loop is blocked.

    Signals only wake that thread, by a `SimpleQueue`, the one thing of its kind that may be used in a signal handler: a
    second signal may interrupt the handler of the first, and a lock that is held there would never be free again.
    """

    def __init__(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self.forced = False
        self._worker = worker
        self._loop = loop
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._leave, name="accoda-leaver", daemon=True)

    def listen(self, supervisor: int | None) -> None:
        """Follow signals from now on until the process ends, and leave too when the supervisor is gone."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._asked.put(None))
        self._thread.start()
        if supervisor is not None:
            link = socket.socket(fileno=supervisor)
            threading.Thread(target=self._watch, args=(link,), name="accoda-supervisor", daemon=True).start()

    def left(self) -> None:
        """The worker has left, and holds no lease: the process must end now, by itself or by force."""
        end_within(EXIT_FORCED if self.forced else EXIT, 1, self._loop)
        self._left.set()
        self._asked.put(None)

    def _leave(self) -> None:
        self._asked.get()
        if self._left.is_set():
            return
        within(0.2, log.info, "asked to stop: finishing what runs")
        self._on_loop(self._worker.shutdown)
        # `timeout`, some shells and supervisors signal the process and its group: that is one request, told twice.
        if self._left.wait(SAME_REQUEST):
            return
        while not self._asked.empty():
            self._asked.get()
        with suppress(Empty):
            self._asked.get(timeout=self._worker.settings.worker("grace").value)
        if self._left.is_set():
            return
        self.forced = True
        self._on_loop(self._worker.abort)
        within(0.2, log.warning, "giving back what is not finished")
        if self._left.wait(ABORT):
            return
        # The loop is blocked, or a handler cannot be stopped. The lease heartbeat has its own thread for this. Then the
        # process must go: a handler that went on after its lease was given away would run beside the next one.
        released = self._worker.release_now(RELEASE)
        end_now(f"ended by force; leases {'were given back' if released else 'end by themselves'}", 1)

    def _on_loop(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed this moment: the worker has left
            self._loop.call_soon_threadsafe(function)

    def _watch(self, link: socket.socket) -> None:
        """Tell the supervisor that we are up, and how we are; when its end of the link is closed, it is gone."""
        last = None
        link.settimeout(1.0)
        while not self._left.is_set():
            now = self._worker.problem
            try:
                if now != last:
                    link.sendall(now.replace("\n", " ").encode() + b"\n")
                    last = now
                if link.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        if not self._left.is_set():
            within(0.2, log.warning, "the supervisor is gone")
            self._asked.put(None)
