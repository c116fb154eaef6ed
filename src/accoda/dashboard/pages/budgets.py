"""Budgets: what is left, which workers hold a part of it, which queues wait for it, and how that was over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accoda.dashboard.charts import SPANS, budget_chart, span_of
from accoda.dashboard.routes import PageCall, page
from accoda.operations import budgets as operations
from accoda.operations.history import reading as history

if TYPE_CHECKING:
    from accoda.app import App


@page("/budgets", "budgets.html", section="budgets")
async def budgets(call: PageCall) -> dict[str, Any]:
    """Every budget, with its tokens over time."""
    span = span_of(call.query)
    views = await operations.list(call.app)
    return {
        "budgets": views,
        "span": span,
        "spans": SPANS,
        "charts": {view.name: budget_chart(await history.budget(call.app, view.name, span)) for view in views},
        "spenders": {view.name: spenders(call.app, view.name) for view in views},
    }


def spenders(app: App, name: str) -> list[str]:
    """The queues whose jobs are paid from a budget, as far as this app knows."""
    return sorted(queue for queue, handlers in app.handlers.items() if name in handlers.options.budgets)
