"""Workers: what runs where since when, and draining one before it is stopped."""

from __future__ import annotations

from typing import Any

from accoda.dashboard.routes import ActionCall, ActionResult, PageCall, action, page
from accoda.operations import workers as operations

SHOWN = 200
SILENT = 15.0
"""Seconds without a heartbeat after which a worker is said to be silent."""


@page("/workers", "workers.html", section="workers")
async def workers(call: PageCall) -> dict[str, Any]:
    """Every worker that is alive."""
    found = await operations.list(call.app)
    return {
        "workers": found[:SHOWN],
        "hidden": max(0, len(found) - SHOWN),
        "silent": SILENT,
        "slots": sum(each.slots for each in found),
        "used": sum(each.running for each in found),
        "troubled": [each for each in found if each.problem or each.beat_age > SILENT],
    }


@action("/do/workers/{id}/drain")
async def drain(call: ActionCall) -> ActionResult:
    """Let a worker finish what it runs and take nothing more."""
    view = await operations.drain(call.app, call.params["id"])
    return ActionResult("/workers", f"{view.name} finishes what it runs and takes nothing more.")


@action("/do/workers/{id}/undrain")
async def undrain(call: ActionCall) -> ActionResult:
    """Let a worker take jobs again."""
    view = await operations.drain(call.app, call.params["id"], False)
    return ActionResult("/workers", f"{view.name} takes jobs again.")
