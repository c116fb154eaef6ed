"""Workers: what runs where since when, and letting one run dry before it is stopped."""

from __future__ import annotations

from typing import Any

from accoda.admin import workers as admin
from accoda.dashboard.calls import ActionCall, PageCall, Went
from accoda.dashboard.routes import ActionRoute, PageRoute

SHOWN = 200
SILENT = 15.0
"""Seconds without a heartbeat after which a worker is said to be silent."""


async def workers(call: PageCall) -> dict[str, Any]:
    """Every worker that lives."""
    found = await admin.list(call.app)
    return {
        "workers": found[:SHOWN],
        "hidden": max(0, len(found) - SHOWN),
        "silent": SILENT,
        "processors": sum(each.max_processors for each in found),
        "busy": sum(each.busy for each in found),
        "troubled": [each for each in found if each.problem or each.beat_age > SILENT],
    }


async def drain(call: ActionCall) -> Went:
    """Let a worker finish what it runs and take nothing more."""
    view = await admin.drain(call.app, call.params["id"])
    return Went("/workers", f"{view.name} finishes what it runs and takes nothing more.")


async def undrain(call: ActionCall) -> Went:
    """Let a worker take jobs again."""
    view = await admin.drain(call.app, call.params["id"], False)
    return Went("/workers", f"{view.name} takes jobs again.")


PAGES = (PageRoute("/workers", workers, "workers.html", section="workers"),)
ACTIONS = (
    ActionRoute("/do/workers/{id}/drain", drain),
    ActionRoute("/do/workers/{id}/undrain", undrain),
)
