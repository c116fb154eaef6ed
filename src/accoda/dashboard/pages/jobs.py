"""Jobs that match a filter, page by page; the address holds the filter."""

from __future__ import annotations

from typing import Any

from accoda.dashboard.pages.parameters import FIELDS, address, filter_of, pretty, words_of
from accoda.dashboard.routes import PageCall, page
from accoda.errors import InvalidInput
from accoda.model import STATES, State
from accoda.operations import jobs as operations
from accoda.operations import queues, workers
from accoda.operations.job_filter import JobFilter
from accoda.operations.levels import LEVELS
from accoda.operations.search import EXAMINED
from accoda.operations.views import JobView, Page
from accoda.operations.words import state_word
from accoda.operations.workers import WorkerView

LIMIT = 50
MOST_NAMES = 500
"""Queues and types that are suggested."""
ORDERS: dict[State, str] = {
    "ready": "in the order in which they will run",
    "held": "by rank, until their lanes have places",
    "delayed": "the next to start first",
    "taken": "by the end of their lease",
}
SHOWN = 120
"""Characters of a payload or error in a row."""


@page("/jobs", "jobs.html", section="jobs")
async def jobs(call: PageCall) -> dict[str, Any]:
    """The jobs that match. What is wrong with a filter is shown beside the form, with what was typed still in it."""
    problem = ""
    page: Page[JobView] = Page([])
    wanted = JobFilter()
    cursor = call.query.get("cursor") or None
    try:
        wanted = filter_of(call.query)
        page = await operations.page(call.app, wanted, limit=LIMIT, cursor=cursor)
    except InvalidInput as error:
        problem = str(error)
    words = words_of(wanted)
    return {
        "asked": {name: call.query.get(name, "") for name in (*FIELDS, "system")},
        "problem": problem,
        "jobs": page.items,
        "brief": {job.id: brief(job) for job in page.items},
        "typed": any(job.type for job in page.items),
        "laned": any(job.lane for job in page.items),
        "ranked": wanted.state == "ready" and any(job.has_own_rank for job in page.items),
        "running": wanted.state == "taken",
        "order": order_text(wanted),
        "types": await _types(call, wanted, page),
        "words": words,
        "filtered": bool(words),
        "first": address("/jobs", **words) if cursor else None,
        "next": address("/jobs", **words, cursor=page.next) if page.next else None,
        "names": [queue.name for queue in (await queues.list(call.app))[:MOST_NAMES]],
        "states": STATES,
        "examined": EXAMINED,
        "levels": LEVELS,
    }


def order_text(wanted: JobFilter) -> str:
    """How jobs in one state are ordered, as the title of their list."""
    if wanted.state is None:
        return ""
    each = ", queue by queue" if wanted.state in ("ready", "held") and wanted.queue is None else ""
    return f"{state_word(wanted.state).capitalize()} jobs, {ORDERS.get(wanted.state, 'latest first')}{each}"


async def _types(call: PageCall, wanted: JobFilter, page: Page[JobView]) -> list[str]:
    """Types to suggest: those that workers of the queue handle, and those of the jobs on this page."""
    handled = [type for worker in await workers.list(call.app) for type in _of_queue(worker, wanted.queue)]
    return sorted({type for type in (*handled, *(job.type for job in page.items)) if type})[:MOST_NAMES]


def _of_queue(worker: WorkerView, queue: str | None) -> list[str | None]:
    return [type for name, types in worker.types.items() if queue in (None, name) for type in types]


def brief(job: JobView) -> str:
    """A line about what a job is: its error if it has one, else its payload."""
    text = job.reason if job.reason else "" if job.payload is None else " ".join(pretty(job.payload).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
