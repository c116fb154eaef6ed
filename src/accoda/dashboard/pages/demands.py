"""Demands: which keys are wanted, by how many, and how fresh what is cached is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accoda.admin import demands as admin
from accoda.admin import fetches
from accoda.dashboard.calls import PageCall
from accoda.dashboard.routes import ActionRoute, PageRoute

if TYPE_CHECKING:
    from accoda.app import App


async def demands(call: PageCall) -> dict[str, Any]:
    """Every demand."""
    return {"demands": await admin.list(call.app)}


async def demand(call: PageCall) -> dict[str, Any]:
    """One demand, its fetches that wait, and what it has cached."""
    queue = call.params["queue"]
    view = await admin.get(call.app, queue)
    return {
        "demand": view,
        "terms": terms(call.app, queue),
        "asked": view.cached + view.stale + view.attached + view.created,
        "fetches": await fetches.waiting(call.app, queue),
        "cached": await fetches.cached(call.app, queue),
        "most": fetches.MOST,
    }


def terms(app: App, queue: str) -> dict[str, Any] | None:
    """What the app says of a demand; None: it does not declare it, and only workers know."""
    declared = app.demands.get(queue)
    if declared is None:
        return None
    return {
        "fresh_for": declared.fresh_for,
        "keep_for": declared.keep_for,
        "budgets": declared.budgets,
        "look_ahead": None if declared.prefetch is None else declared.prefetch.look_ahead,
    }


PAGES = (
    PageRoute("/demands", demands, "demands.html", section="demands"),
    PageRoute("/demands/{queue}", demand, "demand.html", section="demands"),
)
ACTIONS: tuple[ActionRoute, ...] = ()
