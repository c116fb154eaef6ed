"""Pages of jobs: by queue name, then state, then id, with bounded work for each page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accoda.admin import cursors
from accoda.admin.views import JobView, Page
from accoda.errors import InvalidInput
from accoda.model import STATES, check_queue, check_state
from accoda.search import JobFilter, Search, Where, check_filter, matcher
from accoda.search.search import LOOKED_AT, LOOKS

if TYPE_CHECKING:
    from accoda.app import App

__all__ = ["LOOKED_AT", "LOOKS", "MOST", "JobFilter", "Where", "check_limit", "page", "where_of"]

MOST = 1000
"""Jobs of one page."""


async def page(app: App, where: Where, limit: int, cursor: str | None) -> Page[JobView]:
    """The next jobs after a cursor. A page may be short, or even empty, and still have a next one."""
    check_limit(limit)
    if where.queue is not None:
        check_queue(where.queue)
    for state in where.states:
        check_state(state)
    after = None if cursor is None else cursors.decode(cursor)
    store = await app.connections.get()
    found = await Search(store, where, limit).run(after)
    next_cursor = None if found.next is None else cursors.encode(found.next)
    return Page([JobView.of(app, job) for job in found.jobs], next_cursor)


def check_limit(limit: int) -> None:
    """Refuse a size that no page has."""
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise InvalidInput("limit", f"must be an integer from 1 to {MOST}, not {limit!r:.60}")


def where_of(app: App, filter: JobFilter) -> Where:
    """Where to look for the jobs that fit a filter."""
    check_filter(filter)
    states = STATES if filter.state is None else (filter.state,)
    return Where(queue=filter.queue, states=states, system=filter.system, fits=matcher(app, filter), key=filter.key)
