"""`/api/v1/queues`: what is in them; to pause, resume and empty them."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from accoda.errors import InvalidInput
from accoda.http.call import Call
from accoda.http.operation import Link, Nothing, Reply, operation
from accoda.http.resources.common import Count, Items, Moment, QueuePath, SystemQuery, given, present
from accoda.http.security.identity import LOCAL
from accoda.model import State
from accoda.operations import moments, queues
from accoda.operations.health import Health
from accoda.operations.queues import LONGEST_NOTE
from accoda.operations.views import QueueView

GROUP = "Queues"

Note = Annotated[str, Meta(max_length=LONGEST_NOTE, description="the reason, shown by `why`")]

Seconds = Annotated[float, Meta(ge=0, le=1e9, description="seconds")]


class PauseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Until when: a moment, or for so many seconds. Neither: until it is resumed. A note tells others why."""

    until: Moment | UnsetType = UNSET
    for_: Seconds | UnsetType = field(default=UNSET, name="for")
    note: Note | UnsetType = UNSET


class PurgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to delete: those in a state and, if it is told, that have been there since before a moment."""

    state: State
    before: Moment | UnsetType = UNSET


EMAILS = {"name": "emails"}

VIEW = QueueView(
    name="emails", health=Health("healthy"), ready=3, delayed=1, total=4, done=120, oldest_age=2.4, handled=True
)

PAUSED = QueueView(
    name="emails",
    health=Health("paused", "for a while"),
    ready=3,
    total=3,
    paused=True,
    paused_until="2030-01-01T09:00:00.000Z",
    handled=True,
)

_LINKS = tuple(Link(name, {"name": "$request.path.name"}) for name in ("getQueue", "resumeQueue"))


@operation(
    "GET",
    "/api/v1/queues",
    GROUP,
    "All queues in numbers",
    queues="own",
    description="Every queue that ever had a job or a pause, or has a handler here, by name. Counted, not scanned.",
    query_example={"all": False},
    replies={200: Reply(description="The queues.", type=Items[QueueView], example=Items([VIEW]))},
)
async def list_queues(call: Call[None, SystemQuery, Nothing]) -> Items[QueueView]:
    return Items([each for each in await queues.list(call.app, system=call.query.all) if call.identity.has(each.name)])


@operation(
    "GET",
    "/api/v1/queues/{name}",
    GROUP,
    "One queue in numbers",
    queues="path",
    path_example=EMAILS,
    replies={200: Reply(description="The queue.", type=QueueView, example=VIEW)},
    errors=("not-found",),
)
async def get_queue(call: Call[None, Nothing, QueuePath]) -> QueueView:
    return await queues.get(call.app, call.path.name)


@operation(
    "POST",
    "/api/v1/queues/{name}/pause",
    GROUP,
    "Pause a queue",
    scope="admin",
    queues="path",
    description="Nothing of it is handed out until then; running jobs will finish, and new ones may come in.",
    path_example=EMAILS,
    body_optional=True,
    example={"for": 600, "note": "the mail server is being moved"},
    rules={"not": present("until", "for")},
    replies={200: Reply(description="The queue, paused.", type=QueueView, example=PAUSED, links=_LINKS)},
    errors=("not-found",),
)
async def pause_queue(call: Call[PauseRequest, Nothing, QueuePath]) -> QueueView:
    until, seconds = given(call.body.until), given(call.body.for_)
    if until is not None and seconds is not None:
        raise InvalidInput("for", "give either until or for, not both")
    moment = None if until is None else moments.read("until", until)
    # Without tokens the caller is unknown.
    who = "" if call.identity is LOCAL else call.identity.name
    return await queues.pause(call.app, call.path.name, seconds, who, given(call.body.note) or "", until=moment)


@operation(
    "POST",
    "/api/v1/queues/{name}/resume",
    GROUP,
    "Resume a queue",
    scope="admin",
    queues="path",
    path_example=EMAILS,
    replies={200: Reply(description="The queue.", type=QueueView, example=VIEW)},
    errors=("not-found",),
)
async def resume_queue(call: Call[None, Nothing, QueuePath]) -> QueueView:
    return await queues.resume(call.app, call.path.name)


@operation(
    "POST",
    "/api/v1/queues/{name}/purge",
    GROUP,
    "Delete the jobs of a queue that are in a state",
    scope="admin",
    queues="path",
    description="Those that come in while it is at work are spared. Dead and done jobs count from their end, "
    "others from their creation. It goes in parts, so that others get through.",
    path_example=EMAILS,
    example={"state": "dead", "before": "2030-01-01T00:00:00Z"},
    replies={200: Reply(description="How many were deleted.", type=Count, example=Count(17))},
    errors=("conflict",),
)
async def purge_queue(call: Call[PurgeRequest, Nothing, QueuePath]) -> Count:
    text = given(call.body.before)
    before = None if text is None else moments.read("before", text)
    return Count(await queues.purge(call.app, call.path.name, call.body.state, before))
