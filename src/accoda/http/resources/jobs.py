"""`/api/v1/jobs`: create one or many, look at them, and what people do with one of them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.admin import jobs
from accoda.admin.requests import Level, NewJobRequest
from accoda.admin.views import JobView, Page
from accoda.errors import InvalidInput, JobFailed, TooLarge
from accoda.http.call import Answer, Call
from accoda.http.operation import Nothing
from accoda.http.resources.common import (
    TEXT_PATTERN,
    Cursor,
    Fingerprint,
    Flag,
    Items,
    JobPath,
    Limit,
    QueueName,
    given,
)
from accoda.limits import KEY
from accoda.model import Enqueued, State
from accoda.search.filter import FIELD, LONGEST, JobFilter

KEY_HEADER = "idempotency-key"
KEY_PATTERN = "^[!-~]{1,255}$"
"""What every client, proxy and log carries unchanged."""
_KEY = re.compile(KEY_PATTERN)
REPLAYED = ("idempotency-replayed", "true")


class BatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs that are stored together: all of them or none."""

    jobs: Annotated[list[NewJobRequest], Meta(min_length=1)]


def _text(longest: int, description: str, pattern: str = TEXT_PATTERN) -> Meta:
    return Meta(min_length=1, max_length=longest, description=description, extra_json_schema={"pattern": pattern})


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs, and how many at once."""

    queue: QueueName | UnsetType = UNSET
    state: Annotated[State, Meta(description="only those in this state")] | UnsetType = UNSET
    priority: Annotated[Level, Meta(description="only those of this level")] | UnsetType = UNSET
    fingerprint: Fingerprint | UnsetType = UNSET
    key: Annotated[str, _text(KEY, "only those of this key")] | UnsetType = UNSET
    error: Annotated[str, _text(LONGEST, "a fingerprint, or a part of the error's text")] | UnsetType = UNSET
    field: Annotated[str, _text(LONGEST, "a field of the payload: `customer.id=42`", FIELD)] | UnsetType = UNSET
    name: Annotated[str, _text(LONGEST, "a part of the job's name")] | UnsetType = UNSET
    limit: Limit = 50
    cursor: Cursor | UnsetType = UNSET
    all: Flag = False


class ChangeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What shall be otherwise."""

    priority: Level


class ProgressRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """How far a job is: a fraction from 0 to 1 (null: nobody knows), and a line for people."""

    fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=1000)] = ""


class ResultQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for the end of the job."""

    wait: Annotated[float, Meta(ge=0, le=60, description="seconds to wait for the job to end")] = 0.0


class JobResult(Struct, frozen=True):
    """The end of a job, or how far it is. `result` is what its handler returned; null while it is not done."""

    id: int
    state: State
    result: Any = None


async def create_job(call: Call[NewJobRequest, Nothing, Nothing]) -> Answer:
    more: tuple[tuple[str, str], ...] = ()
    if call.header(KEY_HEADER) is None:  # the short way: this is what most requests are
        made = await jobs.create_one(call.app, call.body)
    else:
        (made,), more = await _create(call, [call.body], batch=False)
    return Answer(made, 201 if made.what == "created" else 200, (("location", f"/api/v1/jobs/{made.id}"), *more))


async def create_jobs(call: Call[BatchRequest, Nothing, Nothing]) -> Answer:
    asked, most = call.body.jobs, call.options.max_batch
    if len(asked) > most:
        raise TooLarge("jobs", len(asked), most, "jobs", "send them in several requests")
    made, replayed = await _create(call, asked, batch=True)
    return Answer(Items(made), None, replayed)


async def _create(
    call: Call[Any, Nothing, Nothing], asked: list[NewJobRequest], *, batch: bool
) -> tuple[list[Enqueued], tuple[tuple[str, str], ...]]:
    key = call.header(KEY_HEADER)
    if key is None:
        return await jobs.create(call.app, asked, batch=batch), ()
    if _KEY.fullmatch(key) is None:
        raise InvalidInput("Idempotency-Key", f"must be 1 to 255 ASCII characters without blanks, not {key!r:.80}")
    answer = await jobs.create_once(call.app, asked, key, call.who.name, batch=batch)
    return answer.items, (REPLAYED,) if answer.replayed else ()


async def list_jobs(call: Call[None, JobsQuery, Nothing]) -> Page[JobView]:
    query = call.query
    wanted = JobFilter(
        queue=given(query.queue),
        state=given(query.state),
        priority=given(query.priority),
        key=given(query.key),
        error=given(query.error),
        fingerprint=given(query.fingerprint),
        field=given(query.field),
        name=given(query.name),
        system=query.all,
    )
    return await jobs.page(call.app, wanted, limit=query.limit, cursor=given(query.cursor))


async def get_job(call: Call[None, Nothing, JobPath]) -> JobView:
    return await jobs.get(call.app, call.path.id)


async def delete_job(call: Call[None, Nothing, JobPath]) -> None:
    await jobs.delete(call.app, call.path.id)


async def change_job(call: Call[ChangeRequest, Nothing, JobPath]) -> JobView:
    return await jobs.set_priority(call.app, call.path.id, call.body.priority)


async def cancel_job(call: Call[None, Nothing, JobPath]) -> None:
    await jobs.cancel(call.app, call.path.id)


async def retry_job(call: Call[None, Nothing, JobPath]) -> JobView:
    return await jobs.retry(call.app, call.path.id)


async def set_progress(call: Call[ProgressRequest, Nothing, JobPath]) -> None:
    await jobs.set_progress(call.app, call.path.id, call.body.fraction, call.body.message)


async def get_result(call: Call[None, ResultQuery, JobPath]) -> Answer:
    wait = min(call.query.wait, call.options.max_wait)
    # A look first: most who ask find the end, or wait for nothing, and need no race against their own hanging up.
    job = await jobs.wait_result(call.app, call.path.id, 0.0)
    if job.state not in jobs.ENDED and wait > 0:
        job = await call.poll(jobs.wait_result(call.app, call.path.id, wait)) or job
    if job.state == "dead":
        raise JobFailed(job.id, job.reason or "no reason given")
    return Answer(JobResult(job.id, job.state, job.result), 200 if job.state == "done" else 202)
