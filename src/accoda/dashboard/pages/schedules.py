"""Schedules in plain words: when they come next, what they made, and pausing, triggering and deleting them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from accoda.admin import schedules as admin
from accoda.admin.schedules import LOOKED_AT, ScheduleView
from accoda.dashboard.calls import ActionCall, PageCall, Went
from accoda.dashboard.pages.asked import Text
from accoda.dashboard.routes import ActionRoute, PageRoute

SHOWN = 500
CATCH_UP = {
    "skip": "Ticks that were missed are left out.",
    "once": "Of ticks that were missed, one is made up for.",
    "all": "Every tick that was missed is made up for, up to {limit}.",
}
OVERLAP = {
    "allow": "A tick makes a job even if the last one has not ended.",
    "skip": "A tick is left out while the last job has not ended.",
    "replace": "A tick takes the place of the last job if that has not ended.",
}
SOURCE = {"code": "declared in code", "file": "from a file", "api": "made by hand"}


async def schedules(call: PageCall) -> dict[str, Any]:
    """Every schedule."""
    found = await admin.list(call.app)
    return {"schedules": found[:SHOWN], "hidden": max(0, len(found) - SHOWN), "total": len(found)}


async def schedule(call: PageCall) -> dict[str, Any]:
    """One schedule and the jobs that it made lately."""
    view = await admin.get(call.app, call.params["id"])
    return {
        "schedule": view,
        "rules": rules(view),
        "source": SOURCE.get(view.source or "", ""),
        "payload": Text.of(view.payload),
        "jobs": await admin.recent(call.app, view),
        "looked_at": LOOKED_AT,
    }


def rules(view: ScheduleView) -> list[str]:
    """What becomes of missed and overlapping ticks, in sentences."""
    told = []
    if view.catch_up is not None:
        told.append(CATCH_UP[view.catch_up].format(limit=view.catch_up_limit))
    if view.overlap is not None:
        told.append(OVERLAP[view.overlap])
    return told


async def trigger(call: ActionCall) -> Went:
    """Make its job now."""
    name = call.params["id"]
    made = await admin.trigger(call.app, name)
    if made.what == "kept":
        return Went(call.back, f"Nothing new: job {made.id} of {name} has not ended yet, and they must not overlap.")
    return Went(f"/jobs/{made.id}", f"Made by hand from the schedule {name}.")


async def pause(call: ActionCall) -> Went:
    name = call.params["id"]
    await admin.pause(call.app, name)
    return Went(call.back, f"{name} is paused: no tick comes until it is resumed.")


async def resume(call: ActionCall) -> Went:
    name = call.params["id"]
    await admin.resume(call.app, name)
    return Went(call.back, f"{name} goes on.")


async def delete(call: ActionCall) -> Went:
    name = call.params["id"]
    await admin.delete(call.app, name)
    own = f"/schedules/{quote(name)}"
    return Went("/schedules" if call.back in ("/", own) else call.back, f"{name} was deleted; jobs that it made stay.")


PAGES = (
    PageRoute("/schedules", schedules, "schedules.html", section="schedules"),
    PageRoute("/schedules/{id}", schedule, "schedule.html", section="schedules"),
)
ACTIONS = (
    ActionRoute("/do/schedules/{id}/trigger", trigger),
    ActionRoute("/do/schedules/{id}/pause", pause),
    ActionRoute("/do/schedules/{id}/resume", resume),
    ActionRoute("/do/schedules/{id}/delete", delete),
)
