"""Calls of webhooks, as the page of a job shows them."""

from __future__ import annotations

from accoda.errors import JobNotFound, NotFound
from accoda.model import ENDED, ByKey, JobInfo
from accoda.operations import moments
from accoda.operations.host import Host
from accoda.operations.views import JobView
from accoda.webhooks.call import QUEUE, Event, Facts, message_id
from accoda.webhooks.log import Delivery, delivery, redeliver

LOOKED_AT = 200
"""The latest ended calls of each kind that are searched for those of one job."""
_EVENTS: tuple[Event, ...] = ("job.done", "job.dead")


async def of_job(host: Host, job: JobView) -> list[Delivery]:
    """The calls that reported a job's end, the newest first: those under way, and those among the latest ended."""
    if job.webhook_url is None:
        return []
    store = await host.connections.get()
    found: dict[int, JobInfo] = {}
    created_at = moments.read("createdAt", job.created_at)
    facts = Facts(id=job.id, queue=job.queue, attempts=job.attempts, created_at=created_at)
    for event in _EVENTS:
        waiting = (await store.look(ByKey(QUEUE, message_id(event, facts)))).job
        if waiting is not None:
            found[waiting.id] = waiting
    for state in ENDED:
        found |= {each.id: each for each in await store.browse(QUEUE, state, limit=LOOKED_AT)}
    calls = (delivery(found[id]) for id in sorted(found, reverse=True))
    return [call for call in calls if call.job == job.id]


async def send_again(host: Host, id: int) -> int:
    """Send a call again, now; the id of the call that does it."""
    try:
        return await redeliver(await host.connections.get(), id)
    except JobNotFound:
        raise NotFound("delivery", str(id), "delivered ones are remembered for a week") from None
