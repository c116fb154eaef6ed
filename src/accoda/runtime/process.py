"""One worker process: settings, the metrics page, the worker, logs, and the exit code.

All that may fail at a start comes before the first take: an error there is the worker's own, and costs no job anything.

SIGTERM or SIGINT: take no more, finish the current batches, settle, leave: 0. A second one, or the end of the grace:
give the leases back at once: 1. A process that does not end by itself after that is ended by force: 1.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.model import Stats
from accoda.runtime.host import Host
from accoda.runtime.leaver import Leaver
from accoda.runtime.logs import LogMonitor
from accoda.runtime.loops import fast_loop
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.settings import Settings

if TYPE_CHECKING:
    from accoda.runtime.metrics import Metrics

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


def load_settings(options: ProcessOptions) -> Settings:
    """The settings of the files and options of the command line."""
    return Settings.load(options.settings_files or None, worker=options.name, overrides=options.overrides)


def run_process(app: Host, options: ProcessOptions) -> int:
    """Run a worker in this process until it is told to leave; the exit code."""
    settings = load_settings(options)
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
            on_flows=None if metrics is None else metrics.flows,
            on_flow_end=None if metrics is None else metrics.flow_ended,
        ),
    )
    if metrics is not None and options.metrics_port is not None:
        from accoda.runtime.metrics import lanes_from, serve

        port, host = options.metrics_port, options.metrics_host
        lanes = lanes_from(asyncio.get_running_loop(), lambda: app.storage, worker.queues)
        server = stack.enter_context(serve(port, host, metrics.page, worker.readiness, lanes))
        log.info("metrics at %s/metrics", server.url)
    # Signals end the process as they do any other until it listens to them: until then it holds no job.
    await _start(worker, app)
    leaver = Leaver(worker, asyncio.get_running_loop())
    leaver.listen(options.supervisor)
    try:
        await worker.run()
    finally:
        leaver.left()
        logs.flush()
        for demand in app.demands.values():
            await demand.close()
        await app.connections.close()
    if options.burst and worker.problem:
        log.error("jobs are left: %s", worker.problem)
        return 1
    return 1 if leaver.forced else 0


async def _start(worker: Worker, app: Host) -> None:
    try:
        await worker.init()
    except Exception:  # not if it is cancelled: a store that is still being opened would be waited for
        await app.connections.close()
        raise


def _metrics(options: ProcessOptions, settings: Settings) -> Metrics | None:
    """Metrics, where they are asked for: on a port of this process, or on the supervisor's."""
    if options.metrics_port is None and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return None
    from accoda.runtime.metrics import Metrics

    return Metrics(slow_cycle=lambda queue: float(settings.queue(queue, "slow_cycle").value))
