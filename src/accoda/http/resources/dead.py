"""`/api/v1/dead`: dead letters, what they have in common, and their way back."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.errors import InvalidInput, NotFound
from accoda.http.call import Answer, Call
from accoda.http.operation import Header, Link, Nothing, Reply, operation
from accoda.http.resources.common import (
    GONE,
    NAME_PATTERN,
    Count,
    Cursor,
    Fingerprint,
    Flag,
    JobId,
    JobPath,
    Limit,
    Moment,
    QueueName,
    given,
    present,
)
from accoda.http.resources.jobs import ONE, RETRIED, page_of
from accoda.model import ById
from accoda.operations import bulk, failure_groups, jobs, moments
from accoda.operations.bulk import BulkView
from accoda.operations.failure_groups import DeadGroup, Groups
from accoda.operations.job_filter import JobFilter
from accoda.operations.new_jobs import JobType
from accoda.operations.views import JobView, Page


class DeadQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters, and how many at once."""

    queue: QueueName | UnsetType = UNSET
    type: JobType | UnsetType = UNSET
    fingerprint: Fingerprint | UnsetType = UNSET
    limit: Limit = 50
    cursor: Cursor | UnsetType = UNSET
    all: Flag = False


class GroupsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of which dead letters."""

    queue: QueueName | UnsetType = UNSET
    all: Flag = False


class DeleteQuery(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which dead letters go. The queue must be said, so that a filter that was forgotten does not cost all of them."""

    queue: QueueName
    type: JobType | UnsetType = UNSET
    fingerprint: Fingerprint | UnsetType = UNSET
    after: Moment | UnsetType = UNSET
    before: Moment | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="only count them, up to 20,000")] = False


class DeadFilter(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which dead letters: those that match everything given here. `after` and `before` are moments of their death."""

    queue: Annotated[str, Meta(max_length=128)] | None = None
    type: JobType | None = None
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")] | None = None
    after: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    before: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    system: bool = False


class Replayed(Struct, frozen=True):
    """How many dead letters `matched`, and how many were `revived`. Not `exact`: there are more than were counted."""

    matched: int
    revived: int = 0
    exact: bool = True


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which dead letters to revive: those of a filter, at most `rate` a second, or those with these `ids`, at once."""

    filter: DeadFilter | UnsetType = UNSET
    ids: Annotated[list[JobId], Meta(min_length=1, max_length=10_000)] | UnsetType = UNSET
    rate: Annotated[float, Meta(ge=0.001, le=10_000, description="jobs a second")] | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="change nothing; only count them")] = False


GROUP = "Dead letters"
LOOKS_AT_ONCE = 50

LETTER = JobView(
    id=41,
    queue="emails",
    state="dead",
    priority="NORMAL",
    rank=2.0,
    payload={"to": "anna@example.com"},
    attempts=5,
    tries=5,
    created_at="2030-01-01T09:00:00.000Z",
    scheduled_at="2030-01-01T09:20:00.000Z",
    ended_at="2030-01-01T09:20:01.000Z",
    worker="mailer",
    reason="TimeoutError: no answer after 30 s",
    fingerprint="5d2f8e0b1c9a",
)

REPLAY = BulkView(
    id="9f86d081884c7d65",
    action="retry",
    filter=JobFilter(queue="emails", state="dead"),
    rate=50.0,
    state="running",
    started_at="2030-01-01T10:00:00.000Z",
    matched=100,
    changed=100,
)

FILTER = {"queue": "emails", "fingerprint": "5d2f8e0b1c9a"}


@operation(
    "GET",
    "/api/v1/dead",
    GROUP,
    "List dead letters",
    queues="own",
    description="Jobs that failed for good, by queue, the latest first, each with its reason.",
    query_example={"queue": "emails", "limit": 50},
    replies={
        200: Reply(
            description="A page.",
            type=Page[JobView],
            example=Page([LETTER]),
            links=(Link("listDead", {"cursor": "$response.body#/next"}),),
        )
    },
)
async def list_dead(call: Call[None, DeadQuery, Nothing]) -> Page[JobView]:
    query = call.query
    wanted = JobFilter(
        queue=given(query.queue),
        type=given(query.type),
        state="dead",
        fingerprint=given(query.fingerprint),
        system=query.all,
    )
    return await page_of(call, wanted, query.limit, given(query.cursor))


@operation(
    "GET",
    "/api/v1/dead/groups",
    GROUP,
    "What dead letters have in common",
    queues="own",
    description="Those whose reasons differ only in numbers, ids, quoted texts and addresses share a fingerprint. "
    "At most the latest 20,000 are read; `partial` says that there are more.",
    query_example={"queue": "emails"},
    replies={
        200: Reply(
            description="The groups, the largest first.",
            type=Groups,
            example=Groups(
                groups=[
                    DeadGroup(
                        fingerprint="5d2f8e0b1c9a",
                        count=12,
                        reason="TimeoutError: no answer after 30 s",
                        queues=["emails"],
                        first_at="2030-01-01T08:00:00.000Z",
                        last_at="2030-01-01T09:20:01.000Z",
                        last_id=41,
                    )
                ],
                looked_at=12,
                partial=False,
                total=12,
            ),
        )
    },
)
async def list_dead_groups(call: Call[None, GroupsQuery, Nothing]) -> Groups:
    queue = given(call.query.queue)
    if queue is not None:
        call.check_queue(queue)
    return await failure_groups.groups(call.app, queue, call.query.all, among=call.identity.queues)


@operation(
    "GET",
    "/api/v1/dead/{id}",
    GROUP,
    "Everything about a dead letter",
    queues="job",
    path_example=ONE,
    replies={200: Reply(description="The dead letter.", type=JobView, example=LETTER)},
    errors=("not-found",),
)
async def get_dead(call: Call[None, Nothing, JobPath]) -> JobView:
    return await _dead(call)


@operation(
    "DELETE",
    "/api/v1/dead/{id}",
    GROUP,
    "Delete a dead letter",
    scope="admin",
    queues="job",
    path_example=ONE,
    replies={204: GONE},
    errors=("not-found",),
)
async def delete_dead(call: Call[None, Nothing, JobPath]) -> None:
    await _dead(call)
    await jobs.delete(call.app, call.path.id)


@operation(
    "POST",
    "/api/v1/dead/{id}/replay",
    GROUP,
    "Bring one dead letter back",
    scope="admin",
    queues="job",
    path_example=ONE,
    replies={200: Reply(description="The job, ready again.", type=JobView, example=RETRIED)},
    errors=("not-found", "conflict"),
)
async def replay_dead(call: Call[None, Nothing, JobPath]) -> JobView:
    await _dead(call)
    return await jobs.retry(call.app, call.path.id)


@operation(
    "DELETE",
    "/api/v1/dead",
    GROUP,
    "Delete the dead letters of a queue",
    scope="admin",
    queues="own",
    description="All of them, or those that match. `after` and `before` are moments of their death.",
    query_example={"queue": "emails", "dryRun": True},
    replies={200: Reply(description="How many were, or would be, deleted.", type=Count, example=Count(17))},
)
async def delete_dead_filtered(call: Call[None, DeleteQuery, Nothing]) -> Count:
    query = call.query
    call.check_queue(query.queue)
    which = DeadFilter(
        queue=query.queue,
        type=given(query.type),
        fingerprint=given(query.fingerprint),
        after=given(query.after),
        before=given(query.before),
        system=True,
    )
    if query.dry_run:
        return Count((await bulk.count(call.app, _filter(which), "delete")).n)
    return Count((await bulk.run(call.app, "delete", _filter(which))).changed)


@operation(
    "POST",
    "/api/v1/dead/replay",
    GROUP,
    "Replay dead letters",
    scope="admin",
    queues="own",
    description="With a `filter` a bulk change begins, which runs in the background at no more than `rate` jobs a "
    "second, through restarts: 202, and its state is at `Location`. With `dryRun` nothing is changed: 200, with "
    "their number. With `ids` those are revived at once: 200.",
    rules={
        "properties": {"filter": {"properties": {"queue": {"pattern": NAME_PATTERN}}}},
        "not": {
            "anyOf": [
                present("filter", "ids"),
                {"not": {"anyOf": [present("filter"), present("ids")]}},
                present("ids", "rate"),
                {"required": ["ids", "dryRun"], "properties": {"ids": {}, "dryRun": {"const": True}}},
            ]
        },
    },
    example={"filter": FILTER, "rate": 50, "dryRun": True},
    replies={
        200: Reply(
            description="How many were revived, or would be.",
            type=Replayed,
            example=Replayed(12),
        ),
        202: Reply(
            description="The replay has begun.",
            type=BulkView,
            example=REPLAY,
            headers=(Header(name="Location", description="The path of the bulk change."),),
            links=tuple(Link(name, {"id": "$response.body#/id"}) for name in ("getBulk", "stopBulk")),
        ),
    },
)
async def start_replay(call: Call[ReplayRequest, Nothing, Nothing]) -> Answer:
    asked = call.body
    ids, which, rate = given(asked.ids), given(asked.filter), given(asked.rate)
    if ids is not None:
        for name, value in (("filter", which), ("rate", rate)):
            if value is not None:
                raise InvalidInput(name, "is for those of a filter; ids are revived at once")
        if asked.dry_run:
            raise InvalidInput("dryRun", "is for those of a filter")
        own = ids if call.identity.queues is None else await _own(call, ids)
        return Answer(Replayed(len(set(ids)), await jobs.revive(call.app, own)))
    if which is None:
        raise InvalidInput("filter", "is missing: say which dead letters to revive, by a filter or by their ids")
    call.check_queue(which.queue)
    wanted = _filter(which)
    if asked.dry_run:
        count = await bulk.count(call.app, wanted, "retry")
        return Answer(Replayed(count.n, exact=count.exact))
    replay = await bulk.start(call.app, "retry", wanted, rate=rate, who=call.identity.name)
    return Answer(replay, 202, (("location", f"/api/v1/jobs/bulk/{replay.id}"),))


def _filter(which: DeadFilter) -> JobFilter:
    return JobFilter(
        state="dead",
        queue=which.queue,
        type=which.type,
        fingerprint=which.fingerprint,
        after=which.after,
        before=which.before,
        system=which.system,
    )


async def _own(call: Call[ReplayRequest, Nothing, Nothing], ids: list[int]) -> list[int]:
    """Those of the ids that are there; all are refused if one is in a queue that the caller is not for.

    What is not there is left out: by the time of the change it could be a job of any queue.
    """
    own: list[int] = []
    for first in range(0, len(ids), LOOKS_AT_ONCE):
        some = ids[first : first + LOOKS_AT_ONCE]
        for look in await asyncio.gather(*(call.app.storage.look(ById(id)) for id in some)):
            if look.job is not None:
                call.check_queue(look.job.queue)
                own.append(look.job.id)
    return own


async def _dead(call: Call[None, Nothing, JobPath]) -> JobView:
    job = await jobs.get(call.app, call.path.id)
    if job.state != "dead":
        raise NotFound("dead letter", str(job.id), f"the job is {job.state}")
    return job
