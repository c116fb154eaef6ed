"""Budgets: what is left, who holds a part of it, who waits for it, and how that was over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accoda.admin import budgets as admin
from accoda.admin import history
from accoda.admin.history import BudgetSeriesView, Span
from accoda.dashboard.calls import PageCall
from accoda.dashboard.routes import ActionRoute, PageRoute
from accoda.dashboard.words import moment_of

if TYPE_CHECKING:
    from accoda.app import App

SPANS: tuple[Span, ...] = ("1h", "24h", "7d")
_SPANS: dict[str, Span] = {span: span for span in SPANS}


async def budgets(call: PageCall) -> dict[str, Any]:
    """Every budget, with its tokens over time."""
    span = _SPANS.get(call.query.get("span", ""), "1h")
    views = await admin.list(call.app)
    return {
        "budgets": views,
        "span": span,
        "spans": SPANS,
        "charts": {view.name: chart(await history.budget(call.app, view.name, span)) for view in views},
        "spenders": {view.name: spenders(call.app, view.name) for view in views},
    }


def chart(series: BudgetSeriesView) -> dict[str, Any] | None:
    """A budget over time, as the script draws it; None: nobody has recorded it yet."""
    if all(value is None for value in series.left):
        return None
    start = moment_of(series.start) / 1000
    return {
        "x": [start + slot * series.step for slot in range(len(series.left))],
        "unit": "",
        "series": [
            {"label": "left", "values": series.left, "color": "accent", "fill": True},
            {"label": "reserved", "values": series.reserved, "color": "warn"},
            {"label": "used", "values": series.used, "color": "calm", "dash": True},
            {"label": "refused", "values": series.refused, "color": "bad"},
        ],
    }


def spenders(app: App, name: str) -> list[str]:
    """The queues whose jobs are paid from a budget, as far as this app knows."""
    return sorted(queue for queue, handler in app.handlers.items() if name in handler.options.budgets)


PAGES = (PageRoute("/budgets", budgets, "budgets.html", section="budgets"),)
ACTIONS: tuple[ActionRoute, ...] = ()
