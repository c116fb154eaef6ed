"""Schedules in words: when they come next, what they made; pausing, triggering and deleting them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from accoda.dashboard.pages.parameters import Text
from accoda.dashboard.routes import ActionCall, ActionResult, PageCall, action, page
from accoda.operations import schedules as operations
from accoda.operations.schedules import LOOKED_AT, ScheduleView

SHOWN = 500
CATCH_UP = {
    "skip": "Missed runs: skip.",
    "once": "Missed runs: run once.",
    "all": "Missed runs: run each, up to {limit}.",
}
OVERLAP = {
    "allow": "Overlapping runs: allow.",
    "skip": "Overlapping runs: skip a run while the job of the last one has not finished.",
    "replace": "Overlapping runs: replace the job of the last run if it has not finished.",
}
SOURCE = {"code": "declared in code", "file": "from a file", "api": "created manually"}


@page("/schedules", "schedules.html", section="schedules")
async def schedules(call: PageCall) -> dict[str, Any]:
    """Every schedule."""
    found = await operations.list(call.app)
    return {"schedules": found[:SHOWN], "hidden": max(0, len(found) - SHOWN), "total": len(found)}


@page("/schedules/{id}", "schedule.html", section="schedules")
async def schedule(call: PageCall) -> dict[str, Any]:
    """One schedule and the jobs that it made lately."""
    view = await operations.get(call.app, call.params["id"])
    return {
        "schedule": view,
        "rules": rules(view),
        "source": SOURCE.get(view.source or "", ""),
        "payload": Text.of(view.payload),
        "jobs": await operations.recent(call.app, view),
        "looked_at": LOOKED_AT,
    }


def rules(view: ScheduleView) -> list[str]:
    """What happens to missed and overlapping runs, in sentences."""
    said = []
    if view.catch_up is not None:
        said.append(CATCH_UP[view.catch_up].format(limit=view.catch_up_limit))
    if view.overlap is not None:
        said.append(OVERLAP[view.overlap])
    return said


@action("/do/schedules/{id}/trigger")
async def trigger(call: ActionCall) -> ActionResult:
    """Make its job now."""
    name = call.params["id"]
    made = await operations.trigger(call.app, name)
    if made.what == "kept":
        return ActionResult(
            call.back, f"Not triggered: job {made.id} of {name} has not finished, and its runs must not overlap."
        )
    return ActionResult(f"/jobs/{made.id}", f"Triggered {name} manually.")


@action("/do/schedules/{id}/pause")
async def pause(call: ActionCall) -> ActionResult:
    name = call.params["id"]
    await operations.pause(call.app, name)
    return ActionResult(call.back, f"{name} is paused until it is resumed.")


@action("/do/schedules/{id}/resume")
async def resume(call: ActionCall) -> ActionResult:
    name = call.params["id"]
    await operations.resume(call.app, name)
    return ActionResult(call.back, f"{name} resumed.")


@action("/do/schedules/{id}/delete")
async def delete(call: ActionCall) -> ActionResult:
    name = call.params["id"]
    await operations.delete(call.app, name)
    own = f"/schedules/{quote(name)}"
    return ActionResult(
        "/schedules" if call.back in ("/", own) else call.back, f"{name} was deleted; jobs that it enqueued stay."
    )
