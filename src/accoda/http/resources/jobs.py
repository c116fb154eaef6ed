"""`/api/v1/jobs`: create one or many, look at them, and what people do with one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.errors import InvalidInput, JobCancelled, JobFailed, TooLarge
from accoda.http.call import Answer, Call
from accoda.http.operation import Header, Link, Nothing, Reply, operation
from accoda.http.resources.common import (
    GONE,
    OWN_PATTERN,
    TEXT_PATTERN,
    WEBHOOK_URL,
    Cursor,
    Fingerprint,
    Flag,
    JobPath,
    Limit,
    QueueName,
    given,
    present,
)
from accoda.limits import KEY
from accoda.model import ENDED, Enqueued, State, What
from accoda.operations import jobs
from accoda.operations.default_queue import with_queues
from accoda.operations.job_filter import FIELD, LONGEST, JobFilter
from accoda.operations.lanes import LaneName
from accoda.operations.levels import Level
from accoda.operations.new_jobs import JobType, NewJobRequest
from accoda.operations.served import warning_of
from accoda.operations.views import JobView, Page
from accoda.runtime.results import Progress

KEY_HEADER = "idempotency-key"

KEY_PATTERN = "^[!-~]{1,255}$"
"""What every client, proxy and log carries unchanged."""

_KEY = re.compile(KEY_PATTERN)

_IS_REPLAYED = ("idempotency-replayed", "true")


class BatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs that are stored together: all of them or none."""

    jobs: Annotated[list[NewJobRequest], Meta(min_length=1)]


def _text(longest: int, description: str, pattern: str = TEXT_PATTERN) -> Meta:
    return Meta(min_length=1, max_length=longest, description=description, extra_json_schema={"pattern": pattern})


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs, and how many at once."""

    queue: QueueName | UnsetType = UNSET
    type: JobType | UnsetType = UNSET
    lane: LaneName | UnsetType = UNSET
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
    """How far a job is: a fraction from 0 to 1 (null: unknown), and a line for people."""

    fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=1000)] = ""


class ResultQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for the end of the job."""

    wait: Annotated[float, Meta(ge=0, le=60, description="seconds to wait for the job to end")] = 0.0


class Created(Struct, frozen=True):
    """What became of a job, see `Enqueued`. `warning`: no running worker would take it; it waits for one."""

    id: int
    what: What
    waiters: int = 0
    warning: str | UnsetType = UNSET


class CreatedJobs(Struct, frozen=True):
    """An item for each job. `warning`: no running worker would take some of them; they wait for one."""

    items: list[Enqueued]
    warning: str | UnsetType = UNSET


class JobResult(Struct, frozen=True):
    """The end of a job, or how far it is. `result` is what its handler returned; null while it is not done."""

    id: int
    state: State
    result: Any = None


GROUP = "Jobs"

EMAIL = {
    "queue": "emails",
    "name": "Welcome",
    "payload": {"to": "anna@example.com"},
    "priority": "HIGH",
    "maxRetries": 5,
    "keepFor": 3600,
}

VIEW = JobView(
    id=41,
    queue="emails",
    name="Welcome",
    state="taken",
    priority="HIGH",
    rank=1.0,
    payload={"to": "anna@example.com"},
    max_retries=5,
    created_at="2030-01-01T09:00:00.000Z",
    scheduled_at="2030-01-01T09:00:00.000Z",
    taken_at="2030-01-01T09:00:00.120Z",
    lease_until="2030-01-01T09:01:00.120Z",
    worker="mailer",
    keep_for=3600.0,
    progress=Progress(0.4, "12 of 30 pages"),
)

RETRIED = JobView(
    id=41,
    queue="emails",
    state="ready",
    priority="NORMAL",
    rank=2.0,
    attempts=6,
    created_at="2030-01-01T09:00:00.000Z",
    scheduled_at="2030-01-01T09:30:00.000Z",
)

ONE = {"id": 41}


RULES: dict[str, Any] = {
    "properties": {
        "queue": {"pattern": OWN_PATTERN},
        "key": {"pattern": TEXT_PATTERN},
        "name": {"pattern": TEXT_PATTERN},
        "webhookUrl": {"anyOf": [{"type": "string", **WEBHOOK_URL}, {"type": "null"}]},
    },
    "not": {
        "anyOf": [
            present("delay", "scheduledAt"),
            {**present("onDuplicate"), "not": present("key")},
            {**present("webhookOn"), "not": present("webhookUrl")},
        ]
    },
}

ONCE = Header(
    name="Idempotency-Key",
    description="Any text of yours, such as `order-1001-welcome`, at most 255 ASCII characters without blanks. The "
    "same request with the same key within 24 hours is answered again and stores nothing anew.",
    schema={"type": "string", "format": "idempotency-key", "pattern": KEY_PATTERN},
)

REPLAYED = Header(name="Idempotency-Replayed", description="`true` where the answer is that of an earlier request.")

LOCATION = Header(name="Location", description="The path of the job.")

AFTER = tuple(
    Link(name, {"id": "$response.body#/id"})
    for name in ("getJob", "changeJob", "setProgress", "getResult", "retryJob", "deleteJob")
)


@operation(
    "POST",
    "/api/v1/jobs",
    GROUP,
    "Create a job",
    scope="enqueue",
    queues="own",
    alias="/jobs",
    description="Returns once the job is stored. `type` names the handler, where the queue has several. Without a "
    "`queue` the job goes to the only one with a handler for its `type`, in this service or in a running worker, or "
    "else to `default`; if there are several such queues, it is refused. `POST /jobs` is the same. A `key` "
    "makes it one of a kind in its queue: while such a job waits or runs, it is kept, reranked or replaced as "
    "`onDuplicate` says, and the answer is 200 with its id.",
    rules=RULES,
    example=EMAIL,
    headers=(ONCE,),
    replies={
        201: Reply(
            description="It is stored.",
            type=Created,
            example=Created(41, "created"),
            headers=(LOCATION, REPLAYED),
            links=AFTER,
        ),
        200: Reply(
            description="A job with this key was there: `what` says what became of it.",
            type=Created,
            example=Created(41, "kept", warning="no running worker handles queue emials; did you mean emails?"),
            headers=(LOCATION, REPLAYED),
        ),
    },
    errors=("in-flight", "key-reused"),
)
async def create_job(call: Call[NewJobRequest, Nothing, Nothing]) -> Answer:
    named = await named_and_allowed(call, [call.body], None)
    (one,), more = await _create(call, [call.body], named, batch=False)
    made = Created(one.id, one.what, one.waiters, await warning(call, named))
    return Answer(made, 201 if made.what == "created" else 200, (("location", f"/api/v1/jobs/{made.id}"), *more))


@operation(
    "POST",
    "/api/v1/jobs/batch",
    GROUP,
    "Create many jobs",
    scope="enqueue",
    queues="own",
    description="All of them or none, in order, in one step of the store. What is wrong is named with its place: "
    "`jobs[3].priority`.",
    example={"jobs": [EMAIL, {"queue": "reports", "payload": {"month": "2029-12"}, "delay": 60}]},
    headers=(ONCE,),
    replies={
        201: Reply(
            description="They are stored; an item for each, in the order of the request.",
            type=CreatedJobs,
            example=CreatedJobs([Enqueued(41, "created"), Enqueued(42, "created")]),
            headers=(REPLAYED,),
        )
    },
    errors=("in-flight", "key-reused"),
)
async def create_jobs(call: Call[BatchRequest, Nothing, Nothing]) -> Answer:
    asked, most = call.body.jobs, call.options.max_batch
    if len(asked) > most:
        raise TooLarge("jobs", len(asked), most, "jobs", "send them in several requests")
    named = await named_and_allowed(call, asked, "jobs")
    made, replayed = await _create(call, asked, named, batch=True)
    return Answer(CreatedJobs(made, await warning(call, named)), None, replayed)


async def warning(call: Call[Any, Any, Any], named: Sequence[NewJobRequest]) -> str | UnsetType:
    """That no running worker would take some of these jobs; unset: there is one for each."""
    found = await warning_of(call.app, ((each.queue or "", each.type) for each in named))
    return UNSET if found is None else found


async def _create(
    call: Call[Any, Nothing, Nothing], asked: list[NewJobRequest], named: Sequence[NewJobRequest], *, batch: bool
) -> tuple[list[Enqueued], tuple[tuple[str, str], ...]]:
    key = call.header(KEY_HEADER)
    if key is None:
        return await jobs.create(call.app, named, batch=batch), ()
    if _KEY.fullmatch(key) is None:
        raise InvalidInput("Idempotency-Key", f"must be 1 to 255 ASCII characters without blanks, not {key!r:.80}")
    answer = await jobs.create_once(call.app, named, key, call.identity.name, batch=batch, content=asked)
    return answer.items, (_IS_REPLAYED,) if answer.replayed else ()


async def named_and_allowed(
    call: Call[Any, Any, Any], asked: Sequence[NewJobRequest], where: str | None
) -> Sequence[NewJobRequest]:
    """New jobs, each with its queue. Refuses those for queues that the caller is not for: none takes the place of a
    job there, whatever its key."""
    mine = call.identity.queues
    named = await with_queues(call.app, asked, where, mine)
    if mine is not None:
        for request in named:
            call.check_queue(request.queue)
    return named


async def page_of(call: Call[Any, Any, Any], wanted: JobFilter, limit: int, cursor: str | None) -> Page[JobView]:
    """Jobs that match, of the queues that the caller is for."""
    if wanted.queue is not None:
        call.check_queue(wanted.queue)
    return await jobs.page(call.app, wanted, limit=limit, cursor=cursor, among=call.identity.queues)


@operation(
    "GET",
    "/api/v1/jobs",
    GROUP,
    "List jobs",
    queues="own",
    description="In the order of processing: ready jobs as they will be handed out, held ones by rank, delayed and "
    "running ones by the moment at which they come back, those that have ended latest first. Over several queues, jobs "
    "in one state are merged by that moment; ready and held ones, and jobs in several states, go by queue, then by "
    "state. A page may have fewer items than `limit`, or none, and still have a `next`: no request looks at more than "
    "1,000 jobs. The last page has `next` null.",
    query_example={"queue": "emails", "state": "ready", "limit": 50},
    replies={
        200: Reply(
            description="A page.",
            type=Page[JobView],
            example=Page([VIEW], "k6ZlbWFpbHOldGFrZW4p"),
            links=(Link("listJobs", {"cursor": "$response.body#/next"}),),
        )
    },
)
async def list_jobs(call: Call[None, JobsQuery, Nothing]) -> Page[JobView]:
    query = call.query
    wanted = JobFilter(
        queue=given(query.queue),
        type=given(query.type),
        lane=given(query.lane),
        state=given(query.state),
        priority=given(query.priority),
        key=given(query.key),
        error=given(query.error),
        fingerprint=given(query.fingerprint),
        field=given(query.field),
        name=given(query.name),
        system=query.all,
    )
    return await page_of(call, wanted, query.limit, given(query.cursor))


@operation(
    "GET",
    "/api/v1/jobs/{id}",
    GROUP,
    "Everything about a job",
    queues="job",
    description="Secret fields of its payload are shown as `•••`.",
    path_example=ONE,
    replies={200: Reply(description="The job.", type=JobView, example=VIEW)},
    errors=("not-found",),
)
async def get_job(call: Call[None, Nothing, JobPath]) -> JobView:
    return await jobs.get(call.app, call.path.id)


@operation(
    "DELETE",
    "/api/v1/jobs/{id}",
    GROUP,
    "Delete a job",
    scope="admin",
    queues="job",
    description="In whatever state. A running one loses its lease, and its outcome is refused.",
    path_example=ONE,
    replies={204: GONE},
    errors=("not-found", "conflict"),
)
async def delete_job(call: Call[None, Nothing, JobPath]) -> None:
    await jobs.delete(call.app, call.path.id)


@operation(
    "PATCH",
    "/api/v1/jobs/{id}",
    GROUP,
    "Change the priority of a job",
    scope="admin",
    queues="job",
    description="Of one that waits: a running one has its place no more.",
    path_example=ONE,
    example={"priority": "CRITICAL"},
    replies={200: Reply(description="The job.", type=JobView, example=VIEW)},
    errors=("not-found", "conflict"),
)
async def change_job(call: Call[ChangeRequest, Nothing, JobPath]) -> JobView:
    return await jobs.set_priority(call.app, call.path.id, call.body.priority)


@operation(
    "POST",
    "/api/v1/jobs/{id}/cancel",
    GROUP,
    "Cancel a job",
    scope="admin",
    queues="job",
    description="Takes a job back that waits or runs. One that runs is told within about a second, and its outcome "
    "is refused. It is `cancelled` for its `keepFor`, a running one for a minute at least, and then gone. One that has "
    "ended is a conflict: delete it.",
    path_example=ONE,
    replies={204: GONE},
    errors=("not-found", "conflict"),
)
async def cancel_job(call: Call[None, Nothing, JobPath]) -> None:
    await jobs.cancel(call.app, call.path.id)


@operation(
    "POST",
    "/api/v1/jobs/{id}/retry",
    GROUP,
    "Run a job again, or now",
    scope="admin",
    queues="job",
    description="A dead job is ready again. One that waits for its start time or for its next try is ready now. "
    "One that is ready, held, runs, is done or cancelled is a conflict.",
    path_example=ONE,
    replies={200: Reply(description="The job, ready again.", type=JobView, example=RETRIED)},
    errors=("not-found", "conflict"),
)
async def retry_job(call: Call[None, Nothing, JobPath]) -> JobView:
    return await jobs.retry(call.app, call.path.id)


@operation(
    "PUT",
    "/api/v1/jobs/{id}/progress",
    GROUP,
    "Say how far a job is",
    scope="work",
    queues="job",
    path_example=ONE,
    example={"fraction": 0.4, "message": "12 of 30 pages"},
    replies={204: Reply(description="It is noted.")},
    errors=("not-found", "conflict"),
)
async def set_progress(call: Call[ProgressRequest, Nothing, JobPath]) -> None:
    await jobs.set_progress(call.app, call.path.id, call.body.fraction, call.body.message)


@operation(
    "GET",
    "/api/v1/jobs/{id}/result",
    GROUP,
    "The result of a job",
    queues="job",
    description="With `wait` it answers when the job has ended, or after that many seconds. 200: it is done, and "
    "this is its result. 202: it has not ended; ask again. 404: it was never there, or ended and was not kept "
    "(`keepFor`), or was deleted. 409: it is dead, and `reason` says why; it was cancelled; or it will not be kept, "
    "so that no one could wait for it.",
    path_example=ONE,
    query_example={"wait": 0},
    replies={
        200: Reply(description="It is done.", type=JobResult, example=JobResult(41, "done", {"sent": True})),
        202: Reply(description="It has not ended: ask again.", type=JobResult, example=JobResult(41, "taken")),
    },
    errors=("not-found", "dead", "cancelled", "conflict"),
)
async def get_result(call: Call[None, ResultQuery, JobPath]) -> Answer:
    wait = min(call.query.wait, call.options.max_wait)
    # A look first: most callers find the end, or do not wait, and need no race against their own hang-up.
    job = await jobs.wait_result(call.app, call.path.id, 0.0)
    if job.state not in ENDED and wait > 0:
        job = await call.poll(jobs.wait_result(call.app, call.path.id, wait)) or job
    if job.state == "dead":
        raise JobFailed(job.id, job.reason or "no reason given")
    if job.state == "cancelled":
        raise JobCancelled(job.id)
    return Answer(JobResult(job.id, job.state, job.result), 200 if job.state == "done" else 202)
