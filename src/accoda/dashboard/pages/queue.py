"""One queue: its charts, its line, who works on it, what failed; pause, resume, purge."""

from __future__ import annotations

from typing import Any, cast

from accoda.admin import demands, glance, history, queues, workers
from accoda.admin.history import Span
from accoda.admin.workers import WorkerView
from accoda.dashboard import past
from accoda.dashboard.calls import ActionCall, PageCall, Went
from accoda.dashboard.health import Pace, judge
from accoda.dashboard.routes import ActionRoute, PageRoute
from accoda.dashboard.words import count, duration
from accoda.errors import InvalidInput, NotFound
from accoda.model import STATES

LENGTHS = {"": None, "15m": 900.0, "1h": 3600.0, "8h": 8 * 3600.0, "24h": 24 * 3600.0}
"""For how long a queue may be paused from here."""
PURGED = ("ready", "delayed", "dead", "done")


async def view(call: PageCall) -> dict[str, Any]:
    """Everything about a queue, over `span`."""
    name = call.params["queue"]
    span = call.query.get("span", past.SPANS[0])
    if span not in past.SPANS:
        raise InvalidInput("span", f"must be one of {', '.join(past.SPANS)}, not {span!r:.40}")
    app = call.app
    queue = await queues.get(app, name)
    series = await history.series(app, name, cast(Span, span))
    spark = (await history.spark_lines(app)).get(name)
    alive = [worker for worker in await workers.list(app) if name in worker.queues]
    done, failed = ([], []) if spark is None else (spark.done, spark.failed)
    line = await glance.line(app, name)
    return {
        "queue": queue,
        "health": judge(queue, Pace.of(done, failed, past.SLOT, len(alive))),
        "note": await queues.pause_note(app, name) if queue.paused else None,
        "span": span,
        "spans": past.SPANS,
        "recorded": past.is_recorded(series),
        "rates": past.rate_chart(series),
        "times": past.time_chart(series),
        "depths": past.depth_chart(series),
        "summary": past.summary(series),
        "line": line,
        "bands": await _bands(call, name, line),
        "workers": alive,
        "running": _running(alive, name),
        "failures": await glance.failures(app, name),
        "purged": PURGED,
        "lengths": LENGTHS,
    }


async def _bands(call: PageCall, name: str, line: glance.Line) -> list[tuple[str, int]]:
    """How many wait at each level; for a demand, in each band of its scores."""
    if name in call.app.demands:
        try:
            demand = await demands.get(call.app, name)
        except NotFound:
            return []
        return list(demand.bands.items())
    return [(level.lower(), n) for level, n in line.levels.items() if n or level != "other"]


def _running(alive: list[WorkerView], name: str) -> list[tuple[WorkerView, Any]]:
    """Which processors run jobs of the queue now, the longest first."""
    found = [(worker, each) for worker in alive for each in worker.processors if each.queue == name]
    return sorted(found, key=lambda pair: pair[1].since or "")


async def pause(call: ActionCall) -> Went:
    """Pause, with a note for those who wonder, and for how long."""
    name, length = call.params["queue"], call.form.get("for", "")
    if length not in LENGTHS:
        raise InvalidInput("for", f"must be one of {', '.join(filter(None, LENGTHS))} or nothing, not {length!r:.40}")
    seconds, note = LENGTHS[length], call.form.get("note", "").strip()
    await queues.pause(call.app, name, seconds, who=call.who.name, note=note)
    until = "until somebody resumes it" if seconds is None else f"for {duration(seconds)}"
    return Went(call.back, f"{name} is paused {until}. Jobs that run go on.")


async def purge(call: ActionCall) -> Went:
    """Delete the jobs in one state that are there now."""
    name, state = call.params["queue"], call.form.get("state", "")
    if state not in PURGED or state not in STATES:
        raise InvalidInput("state", f"must be one of {', '.join(PURGED)}, not {state!r:.40}")
    if call.form.get("sure", "") != name:
        raise InvalidInput("sure", f"type the name of the queue, {name}, to delete its jobs")
    gone = await queues.purge(call.app, name, state)
    what = f"{state} job of {name} is" if gone == 1 else f"{state} jobs of {name} are"
    return Went(call.back, f"{count(gone)} {what} deleted.")


PAGES = (PageRoute("/queues/{queue}", view, "queue.html", section="overview"),)
ACTIONS = (
    ActionRoute("/do/queues/{queue}/pause", pause),
    ActionRoute("/do/queues/{queue}/purge", purge),
)
