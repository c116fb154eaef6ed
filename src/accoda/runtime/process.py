"""One worker process: signals, the metrics page, logs, and the exit code.

SIGTERM or SIGINT: take no more, finish the current batches, settle, leave: 0. A second one, or the end of the grace:
give the leases back at once: 1.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from accoda.model import Stats
from accoda.runtime.host import Host
from accoda.runtime.logs import LogMonitor
from accoda.runtime.loops import fast_loop
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.settings import Settings

if TYPE_CHECKING:
    from accoda.runtime.metrics import Metrics

RELEASE = 5.0
"""Seconds in which a worker must have given its leases back; then the process is ended whatever it does."""

SAME_REQUEST = 0.03
"""Seconds in which a second signal is taken for the first one."""

log = logging.getLogger("accoda.worker")


class ProcessOptions(Struct, frozen=True, kw_only=True):
    """What the command line says of a worker process."""

    queues: tuple[str, ...] = ()
    name: str = "default"
    burst: bool = False
    managed: bool = True
    system_jobs: bool = True
    settings_files: tuple[str, ...] = ()
    overrides: dict[str, object] = {}
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    supervisor: int | None = None


def run_process(app: Host, options: ProcessOptions) -> int:
    """Run a worker in this process until it is told to leave; the exit code."""
    settings = Settings.load(options.settings_files or None, worker=options.name, overrides=options.overrides)
    with asyncio.Runner(loop_factory=fast_loop) as runner, ExitStack() as stack:
        return runner.run(_main(app, options, settings, stack))


async def _main(app: Host, options: ProcessOptions, settings: Settings, stack: ExitStack) -> int:
    metrics = _metrics(options, settings)
    logs = LogMonitor()

    def show(stats: Stats) -> None:
        if metrics is not None:
            metrics.depths(stats, {queue: app.handlers[queue].options.number for queue in worker.queues})

    worker = Worker(
        app,
        WorkerOptions(
            queues=options.queues,
            name=options.name,
            burst=options.burst,
            managed=options.managed,
            system_jobs=options.system_jobs,
            settings=settings,
            monitors=(logs,) if metrics is None else (logs, metrics),
            on_stats=show,
            on_budgets=None if metrics is None else metrics.budgets,
            on_demand=None if metrics is None else metrics.demand,
        ),
    )
    await worker.init()
    if metrics is not None and options.metrics_port is not None:
        from accoda.runtime.metrics import serve

        ready = _readiness(worker)
        server = stack.enter_context(serve(options.metrics_port, options.metrics_host, metrics.page, ready))
        log.info("metrics at %s/metrics", server.url)
    leaver = Leaver(worker, asyncio.get_running_loop())
    stack.callback(leaver.close)
    leaver.listen(options.supervisor)
    try:
        await worker.run()
    finally:
        logs.flush()
        await app.connections.close()
    return 1 if leaver.forced else 0


class Leaver:
    """Sees to it that the process leaves when it is told to, even if a handler blocks the event loop.

    Signals only wake a thread of its own, which does the rest. So it works while the loop is blocked. They do so by a
    `SimpleQueue`, the one thing of its kind that may be used in a signal handler: a second signal may interrupt the
    handler of the first, and a lock that is held there would never be free again.
    """

    def __init__(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self.forced = False
        self._worker = worker
        self._loop = loop
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._gone = threading.Event()
        self._before: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._leave, name="accoda-leaver", daemon=True)

    def listen(self, supervisor: int | None) -> None:
        """Follow signals from now on, and leave too when the supervisor is gone."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, lambda *_: self._asked.put(None))
        self._thread.start()
        if supervisor is not None:
            link = socket.socket(fileno=supervisor)
            threading.Thread(target=self._watch, args=(link,), name="accoda-supervisor", daemon=True).start()

    def close(self) -> None:
        """The worker has left: nothing more to see to."""
        self._gone.set()
        self._asked.put(None)
        for number, before in self._before.items():
            signal.signal(number, before)

    def _leave(self) -> None:
        self._asked.get()
        if self._gone.is_set():
            return
        log.info("asked to stop: finishing what runs")
        self._loop.call_soon_threadsafe(self._worker.shutdown)
        # `timeout`, some shells and supervisors signal the process and its group: that is one request, told twice.
        if self._gone.wait(SAME_REQUEST):
            return
        while not self._asked.empty():
            self._asked.get()
        with suppress(Empty):
            self._asked.get(timeout=self._worker.settings.worker("grace").value)
        if self._gone.is_set():
            return
        self.forced = True
        log.warning("giving back what is not finished")
        self._loop.call_soon_threadsafe(self._worker.abort)
        if self._gone.wait(RELEASE / 2):
            return
        # The loop is blocked, or a handler cannot be stopped. The lease heartbeat has its own thread for this. Then the
        # process must go: a handler that went on after its lease was given away would run beside the next one.
        released = self._worker.release_now(RELEASE / 2)
        log.error("ended by force; leases %s", "were given back" if released else "end by themselves")
        logging.shutdown()
        os._exit(1)

    def _watch(self, link: socket.socket) -> None:
        """Tell the supervisor how we are; when its end of the link is closed, it is gone."""
        last = None
        link.settimeout(1.0)
        while not self._gone.is_set():
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
        if not self._gone.is_set():
            log.warning("the supervisor is gone")
            self._asked.put(None)


def _metrics(options: ProcessOptions, settings: Settings) -> Metrics | None:
    """Metrics, where they are asked for: on a port of this process, or on the supervisor's."""
    if options.metrics_port is None and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return None
    from accoda.runtime.metrics import Metrics

    return Metrics(slow_cycle=lambda queue: float(settings.queue(queue, "slow_cycle").value))


def _readiness(worker: Worker) -> Callable[[], tuple[bool, str]]:
    return lambda: (worker.ready, worker.problem or "the worker is stopping")
