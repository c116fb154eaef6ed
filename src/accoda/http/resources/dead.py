"""`/api/v1/dead`: dead letters, what they have in common, and their way back."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.admin import dead, jobs
from accoda.admin.dead import DeadFilter, Groups, ReplayView
from accoda.admin.views import JobView, Page
from accoda.errors import InvalidInput, NotFound
from accoda.http.call import Answer, Call
from accoda.http.operation import Nothing
from accoda.http.resources.common import (
    Count,
    Cursor,
    Fingerprint,
    Flag,
    Items,
    JobId,
    JobPath,
    Limit,
    Moment,
    QueueName,
    given,
)


class DeadQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters, and how many at once."""

    queue: QueueName | UnsetType = UNSET
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
    fingerprint: Fingerprint | UnsetType = UNSET
    after: Moment | UnsetType = UNSET
    before: Moment | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="only count them, up to 20,000")] = False


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which dead letters come back: those of a filter, at most `rate` a second, or those with these `ids`, at once."""

    filter: DeadFilter | UnsetType = UNSET
    ids: Annotated[list[JobId], Meta(min_length=1, max_length=10_000)] | UnsetType = UNSET
    rate: Annotated[float, Meta(ge=0.001, le=10_000, description="jobs a second")] | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="change nothing; count them, and show a few")] = False


class ReplayPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A replay by its id."""

    id: Annotated[str, Meta(pattern="^[0-9a-zA-Z]{1,64}$", description="the replay's id")]


async def list_dead(call: Call[None, DeadQuery, Nothing]) -> Page[JobView]:
    query = call.query
    return await dead.page(
        call.app,
        queue=given(query.queue),
        fingerprint=given(query.fingerprint),
        limit=query.limit,
        cursor=given(query.cursor),
        system=query.all,
    )


async def list_dead_groups(call: Call[None, GroupsQuery, Nothing]) -> Groups:
    return await dead.groups(call.app, given(call.query.queue), call.query.all)


async def get_dead(call: Call[None, Nothing, JobPath]) -> JobView:
    return await _dead(call)


async def delete_dead(call: Call[None, Nothing, JobPath]) -> None:
    await _dead(call)
    await jobs.delete(call.app, call.path.id)


async def replay_dead(call: Call[None, Nothing, JobPath]) -> JobView:
    await _dead(call)
    return await jobs.retry(call.app, call.path.id)


async def delete_dead_filtered(call: Call[None, DeleteQuery, Nothing]) -> Count:
    query = call.query
    which = DeadFilter(
        queue=query.queue,
        fingerprint=given(query.fingerprint),
        after=given(query.after),
        before=given(query.before),
        system=True,
    )
    return Count(await dead.delete(call.app, which, dry_run=query.dry_run))


async def start_replay(call: Call[ReplayRequest, Nothing, Nothing]) -> Answer:
    asked = call.body
    ids, which, rate = given(asked.ids), given(asked.filter), given(asked.rate)
    if ids is not None:
        for name, value in (("filter", which), ("rate", rate)):
            if value is not None:
                raise InvalidInput(name, "is for those of a filter; ids come back at once")
        if asked.dry_run:
            raise InvalidInput("dryRun", "is for those of a filter; look at the ids one by one")
        return Answer(await dead.revive(call.app, ids))
    if which is None:
        raise InvalidInput("filter", "is missing: say which dead letters come back, by a filter or by their ids")
    if asked.dry_run:
        return Answer(await dead.replay(call.app, which, rate=rate, dry_run=True))
    replay = await dead.start_replay(call.app, which, rate)
    return Answer(replay, 202, (("location", f"/api/v1/dead/replays/{replay.id}"),))


async def list_replays(call: Call[None, Nothing, Nothing]) -> Items[ReplayView]:
    return Items(await dead.list_replays(call.app))


async def get_replay(call: Call[None, Nothing, ReplayPath]) -> ReplayView:
    return await dead.replay_state(call.app, call.path.id)


async def stop_replay(call: Call[None, Nothing, ReplayPath]) -> ReplayView:
    return await dead.stop_replay(call.app, call.path.id)


async def _dead(call: Call[None, Nothing, JobPath]) -> JobView:
    job = await jobs.get(call.app, call.path.id)
    if job.state != "dead":
        raise NotFound("dead letter", str(job.id), f"the job is {job.state}")
    return job
