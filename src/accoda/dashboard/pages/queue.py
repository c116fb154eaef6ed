"""One queue: its charts, its line, its workers, what failed; pause, resume, purge."""

from __future__ import annotations

from typing import Any

from accoda.dashboard import charts
from accoda.dashboard.routes import ActionCall, ActionResult, PageCall, action, page
from accoda.dashboard.words import count
from accoda.errors import InvalidInput, NotFound
from accoda.model import STATES
from accoda.names import is_system
from accoda.operations import demands, lanes, queues, workers
from accoda.operations.history import reading as history
from accoda.operations.queues import WaitingSummary
from accoda.operations.words import length
from accoda.operations.workers import WorkerView

LENGTHS = {"": None, "15m": 900.0, "1h": 3600.0, "8h": 8 * 3600.0, "24h": 24 * 3600.0}
"""For how long a queue may be paused from here."""
PURGED = ("ready", "delayed", "held", "dead", "done", "cancelled")


@page("/queues/{queue}", "queue.html", section="overview")
async def view(call: PageCall) -> dict[str, Any]:
    """Everything about a queue, over `span`."""
    name = call.params["queue"]
    span, app = charts.span_of(call.query), call.app
    queue = await queues.get(app, name)
    recorded = await history.read_history(app.storage, name, span)
    series = history.SeriesView.of(name, span, recorded)
    alive = [worker for worker in await workers.list(app) if name in worker.queues]
    waiting = await queues.waiting(app, name)
    return {
        "queue": queue,
        "health": queue.health,
        "is_record": queue.system and not is_system(name),
        "note": await queues.note_of(app, name) if queue.paused else None,
        "span": span,
        "spans": charts.SPANS,
        "recorded": charts.is_recorded(series),
        "rates": charts.rate_chart(series),
        "times": charts.time_chart(series),
        "depths": charts.depth_chart(series),
        "summary": charts.summary(recorded, span),
        "waiting": waiting,
        "laned": bool(queue.held) or any(job.lane for job in waiting.next) or await lanes.has_rules(app, name),
        "bands": await _bands(call, name, waiting),
        "workers": alive,
        "running": _running(alive, name),
        "failures": await queues.failures(app, name),
        "purged": PURGED,
        "lengths": LENGTHS,
    }


async def _bands(call: PageCall, name: str, waiting: WaitingSummary) -> list[tuple[str, int]]:
    """How many jobs wait at each level; for a demand, in each band of its scores."""
    if name in call.app.demands:
        try:
            demand = await demands.get(call.app, name)
        except NotFound:
            return []
        return list(demand.bands.items())
    return [(level.lower(), n) for level, n in waiting.levels.items() if n or level != "other"]


def _running(alive: list[WorkerView], name: str) -> list[tuple[WorkerView, Any]]:
    """Which workers run jobs of the queue now, the longest first."""
    found = [(worker, each) for worker in alive for each in worker.processors if each.queue == name]
    return sorted(found, key=lambda pair: pair[1].since or "")


@action("/do/queues/{queue}/pause")
async def pause(call: ActionCall) -> ActionResult:
    """Pause for a length of time, with a note for people who ask why."""
    name, span = call.params["queue"], call.form.get("for", "")
    if span not in LENGTHS:
        raise InvalidInput("for", f"must be one of {', '.join(filter(None, LENGTHS))} or nothing, not {span!r:.40}")
    seconds, note = LENGTHS[span], call.form.get("note", "").strip()
    await queues.pause(call.app, name, seconds, who=call.identity.name, note=note)
    until = "until it is resumed" if seconds is None else f"for {length(seconds)}"
    return ActionResult(call.back, f"{name} is paused {until}. Running jobs will finish.")


@action("/do/queues/{queue}/purge")
async def purge(call: ActionCall) -> ActionResult:
    """Delete the jobs in one state that are there now."""
    name, state = call.params["queue"], call.form.get("state", "")
    if state not in PURGED or state not in STATES:
        raise InvalidInput("state", f"must be one of {', '.join(PURGED)}, not {state!r:.40}")
    if call.form.get("sure", "") != name:
        raise InvalidInput("sure", f"type the name of the queue, {name}, to delete its jobs")
    gone = await queues.purge(call.app, name, state)
    what = f"{state} job of {name} is" if gone == 1 else f"{state} jobs of {name} are"
    return ActionResult(call.back, f"{count(gone)} {what} deleted.")
