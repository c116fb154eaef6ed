"""Calls of webhooks, as the page of a job shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accoda.admin import moments
from accoda.admin.latest import latest
from accoda.admin.views import JobView
from accoda.errors import JobNotFound, NotFound
from accoda.model import JobInfo
from accoda.webhooks import Delivery, redeliver
from accoda.webhooks.call import message_id
from accoda.webhooks.log import delivery
from accoda.webhooks.records import QUEUE, Event, Facts

if TYPE_CHECKING:
    from accoda.app import App

LOOKED_AT = 200
"""Ended calls of each kind that are looked through for those of one job."""
_EVENTS: tuple[Event, ...] = ("job.done", "job.dead")


async def of_job(app: App, job: JobView) -> list[Delivery]:
    """The calls that told of a job's end, the newest first: those on their way, and those among the newest ended."""
    if job.webhook_url is None:
        return []
    store = await app.connections.get()
    found: dict[int, JobInfo] = {}
    created_at = moments.read("createdAt", job.created_at)
    facts = Facts(id=job.id, queue=job.queue, attempts=job.attempts, created_at=created_at)
    for event in _EVENTS:
        waiting = (await store.peek(QUEUE, message_id(event, facts))).job
        if waiting is not None:
            found[waiting.id] = waiting
    for state in ("done", "dead"):
        found |= {each.id: each for each in await latest(store, QUEUE, state, LOOKED_AT)}
    calls = (delivery(found[id]) for id in sorted(found, reverse=True))
    return [call for call in calls if call.job == job.id]


async def send_again(app: App, id: int) -> int:
    """Send a call again, now; the id of the call that does it."""
    try:
        return await redeliver(await app.connections.get(), id)
    except JobNotFound:
        raise NotFound("delivery", str(id), "delivered ones are remembered for a week") from None
