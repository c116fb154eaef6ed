"""Demands: which keys are wanted, by how many waiters, and how fresh cached results are."""

from __future__ import annotations

from typing import Any

from accoda.dashboard.routes import PageCall, page
from accoda.operations import demands as operations


@page("/demands", "demands.html", section="demands")
async def demands(call: PageCall) -> dict[str, Any]:
    """Every demand."""
    return {"demands": await operations.list(call.app)}


@page("/demands/{queue}", "demand.html", section="demands")
async def demand(call: PageCall) -> dict[str, Any]:
    """One demand, its fetches, and what is cached."""
    queue = call.params["queue"]
    view = await operations.get(call.app, queue)
    return {
        "demand": view,
        "declared": call.app.demands.get(queue),
        "asked": view.cached + view.stale + view.attached + view.created,
        "fetches": await operations.fetches(call.app, queue),
        "cached": await operations.cached(call.app, queue),
        "most": operations.MOST,
    }
