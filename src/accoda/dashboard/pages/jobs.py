"""Jobs that fit a filter, page by page; the address keeps the filter."""

from __future__ import annotations

from typing import Any

from accoda.admin import jobs as admin
from accoda.admin import queues
from accoda.admin.pages import JobFilter
from accoda.admin.views import JobView, Page
from accoda.dashboard.calls import PageCall
from accoda.dashboard.pages.asked import FIELDS, LEVELS, address, filter_of, words_of
from accoda.dashboard.routes import ActionRoute, PageRoute
from accoda.errors import InvalidInput
from accoda.model import STATES

LIMIT = 50
MOST_NAMES = 500
"""Queues whose names are offered."""
SHOWN = 120
"""Characters of a payload or error in a row."""


async def jobs(call: PageCall) -> dict[str, Any]:
    """The jobs that fit. A filter that cannot be used is told beside the form, with what was typed still in it."""
    problem = ""
    page: Page[JobView] = Page([])
    wanted = JobFilter()
    cursor = call.query.get("cursor") or None
    try:
        wanted = filter_of(call.query)
        page = await admin.page(call.app, wanted, limit=LIMIT, cursor=cursor)
    except InvalidInput as error:
        problem = str(error)
    words = words_of(wanted)
    return {
        "asked": {name: call.query.get(name, "") for name in (*FIELDS, "system")},
        "problem": problem,
        "jobs": page.items,
        "brief": {job.id: brief(job) for job in page.items},
        "words": words,
        "filtered": bool(words),
        "first": address("/jobs", **words) if cursor else None,
        "next": address("/jobs", **words, cursor=page.next) if page.next else None,
        "names": [queue.name for queue in (await queues.list(call.app))[:MOST_NAMES]],
        "states": STATES,
        "levels": LEVELS,
    }


def brief(job: JobView) -> str:
    """A line about what a job is: its error if it has one, else its payload."""
    from accoda.dashboard.pages.asked import pretty

    text = job.reason if job.reason else "" if job.payload is None else " ".join(pretty(job.payload).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


PAGES = (PageRoute("/jobs", jobs, "jobs.html", section="jobs"),)
ACTIONS: tuple[ActionRoute, ...] = ()
