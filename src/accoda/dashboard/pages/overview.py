"""The overview: every queue at a glance, and what needs a look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from accoda.admin import history, queues, workers
from accoda.admin.history import Spark
from accoda.admin.overview import Rate, overview
from accoda.admin.views import QueueView
from accoda.admin.workers import WorkerView
from accoda.dashboard.calls import ActionCall, PageCall, Went
from accoda.dashboard.health import Health, Pace, judge
from accoda.dashboard.past import SLOT
from accoda.dashboard.routes import ActionRoute, PageRoute

SHOWN = 200
"""Queues on the page; the filter finds the others."""
WORKERS = 8
ANNOUNCED = 5
"""Queues in trouble that a screen reader is told of."""
POINTS = 60
LATELY = 4
"""Points of a sparkline of which the present rate is made: a minute."""


class Row(Struct, frozen=True, kw_only=True):
    """A queue with all that its row tells."""

    queue: QueueView
    health: Health
    workers: int
    rate: float | None
    failed: float
    done_line: list[float]
    failed_line: list[float]


async def view(call: PageCall) -> dict[str, Any]:
    """All queues whose name has the text `q` in it."""
    seen = await overview(call.app)
    sparks = await history.spark_lines(call.app)
    alive = await workers.list(call.app)
    serving = serves(alive)
    wanted = call.query.get("q", "")
    rates = seen.rates or {}
    # A queue that did nothing lately has no line, once there are any: it lies at nothing.
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
        "alive": sorted(alive, key=lambda worker: (not worker.problem, -worker.busy, worker.name))[:WORKERS],
        "more_workers": max(0, len(alive) - WORKERS),
    }


def serves(alive: Sequence[WorkerView]) -> Counter[str]:
    """How many workers there are for each queue."""
    return Counter(queue for worker in alive for queue in worker.queues)


def _row(queue: QueueView, spark: Spark | None, served: int, measured: Rate | None) -> Row:
    done, failed = ([], []) if spark is None else (spark.done, spark.failed)
    pace = Pace.of(done, failed, SLOT, served)
    lately = done[-LATELY:]
    rate = sum(lately) / len(lately) if lately else None if measured is None else measured.done
    return Row(
        queue=queue,
        health=judge(queue, pace),
        workers=served,
        rate=rate,
        failed=pace.failed,
        done_line=done,
        failed_line=failed,
    )


async def pause(call: ActionCall) -> Went:
    """Pause a queue at once, until somebody resumes it."""
    name = call.params["queue"]
    await queues.pause(call.app, name, who=call.who.name)
    return Went(call.back, f"{name} is paused. Jobs that run go on.")


async def resume(call: ActionCall) -> Went:
    """End a pause."""
    name = call.params["queue"]
    await queues.resume(call.app, name)
    return Went(call.back, f"{name} goes on.")


PAGES = (PageRoute("/", view, "overview.html", section="overview"),)
ACTIONS = (
    ActionRoute("/do/queues/{queue}/pause-now", pause),
    ActionRoute("/do/queues/{queue}/resume", resume),
)
