"""The overview: every queue in a row, and what needs attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from accoda.dashboard.routes import ActionCall, ActionResult, PageCall, action, page
from accoda.operations import queues, workers
from accoda.operations.health import Health, RecentRuns
from accoda.operations.history.reading import read_sparks
from accoda.operations.history.sparks import Spark
from accoda.operations.overview import Rate, overview
from accoda.operations.views import QueueView
from accoda.operations.workers import WorkerView

SHOWN = 200
"""Queues on the page; the filter finds the others."""
WORKERS = 8
ANNOUNCED = 5
"""Queues in trouble that a screen reader announces."""
POINTS = 60


class Row(Struct, frozen=True, kw_only=True):
    """A queue with all that its row shows."""

    queue: QueueView
    health: Health
    workers: int
    rate: float | None
    failed: float
    done_line: list[float]
    failed_line: list[float]


@page("/", "overview.html", section="overview")
async def view(call: PageCall) -> dict[str, Any]:
    """All queues whose name contains the text `q`."""
    seen = await overview(call.app)
    sparks = await read_sparks(call.app.storage)
    alive = await workers.list(call.app)
    serving = serves(alive)
    wanted = call.query.get("q", "")
    rates = seen.rates or {}
    # A queue that did nothing lately has no line, if there are any: it is flat.
    flat = Spark([0.0] * POINTS, [0.0] * POINTS) if sparks else None
    rows = [
        _row(queue, sparks.get(queue.name, flat), serving[queue.name], rates.get(queue.name))
        for queue in seen.queues
        if wanted.lower() in queue.name.lower()
    ]
    return {
        "seen": seen,
        "rows": rows[:SHOWN],
        "hidden": max(0, len(rows) - SHOWN),
        "q": wanted,
        "rate": sum(row.rate or 0.0 for row in rows),
        "failed": sum(row.failed for row in rows),
        "troubled": [row for row in rows if row.health.is_trouble][:ANNOUNCED],
        "alive": sorted(alive, key=lambda worker: (not worker.problem, -worker.running, worker.name))[:WORKERS],
        "more_workers": max(0, len(alive) - WORKERS),
    }


def serves(alive: Sequence[WorkerView]) -> Counter[str]:
    """How many workers there are for each queue."""
    return Counter(queue for worker in alive for queue in worker.queues)


def _row(queue: QueueView, spark: Spark | None, served: int, rate: Rate | None) -> Row:
    done, failed = ([], []) if spark is None else (spark.done, spark.failed)
    recent = RecentRuns.of(spark, served)
    return Row(
        queue=queue,
        health=queue.health,
        workers=served,
        rate=None if rate is None else rate.done,
        failed=recent.failed,
        done_line=done,
        failed_line=failed,
    )


@action("/do/queues/{queue}/pause-now")
async def pause(call: ActionCall) -> ActionResult:
    """Pause a queue until it is resumed."""
    name = call.params["queue"]
    await queues.pause(call.app, name, who=call.identity.name)
    return ActionResult(call.back, f"{name} is paused. Running jobs will finish.")


@action("/do/queues/{queue}/resume")
async def resume(call: ActionCall) -> ActionResult:
    """End a pause."""
    name = call.params["queue"]
    await queues.resume(call.app, name)
    return ActionResult(call.back, f"{name} resumed.")
