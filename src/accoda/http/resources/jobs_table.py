"""The operations of `/api/v1/jobs`, in words. What they do is in `jobs.py`."""

from __future__ import annotations

from typing import Any

from accoda.admin.requests import NewJobRequest
from accoda.admin.views import JobView, Page, ProgressView
from accoda.http.operation import Header, Link, Operation, Reply
from accoda.http.resources import jobs
from accoda.http.resources.common import GONE, OWN_PATTERN, TEXT_PATTERN, WEBHOOK_URL, Items, JobPath
from accoda.model import Enqueued

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
    progress=ProgressView(0.4, "12 of 30 pages"),
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


def _text(*fields: str) -> dict[str, Any]:
    """The fields are there, and not null."""
    return {"required": list(fields), "properties": {name: {"type": "string"} for name in fields}}


def _without(field: str) -> dict[str, Any]:
    """The field is not there, or null."""
    return {"properties": {field: {"type": "null"}}}


RULES: dict[str, Any] = {
    "oneOf": [{**_text("queue"), "title": "queue"}, {**_text("type"), "title": "type"}],
    "allOf": [
        {"properties": {"queue": {"pattern": OWN_PATTERN}, "type": {"pattern": OWN_PATTERN}}},
        {"properties": {"key": {"pattern": TEXT_PATTERN}, "name": {"pattern": TEXT_PATTERN}}},
        {"properties": {"webhookUrl": WEBHOOK_URL}},
        {"anyOf": [_without("delay"), _without("scheduledAt")]},
        {"anyOf": [_without("onDuplicate"), _text("key")]},
        {"anyOf": [_without("webhookOn"), _text("webhookUrl")]},
    ],
}
ONCE = Header(
    name="Idempotency-Key",
    description="Any text of yours, such as `order-1001-welcome`, at most 255 ASCII characters without blanks. The "
    "same request with the same key within 24 hours is answered again and stores nothing anew.",
    schema={"type": "string", "format": "idempotency-key", "pattern": jobs.KEY_PATTERN},
)
REPLAYED = Header(name="Idempotency-Replayed", description="`true` where the answer is that of an earlier request.")
LOCATION = Header(name="Location", description="The path of the job.")
AFTER = tuple(
    Link(name, {"id": "$response.body#/id"})
    for name in ("getJob", "changeJob", "setProgress", "getResult", "retryJob", "deleteJob")
)

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/v1/jobs",
        handler=jobs.create_job,
        group=GROUP,
        scope="enqueue",
        summary="Create a job",
        description="Stored when the answer comes. `queue` (or `type`, which is the same) says for which queue it is. "
        "A `key` makes it one of a kind there: while such a job waits or runs, it is kept or replaced as `onDuplicate` "
        "says, and the answer is 200 with its id.",
        request=NewJobRequest,
        rules=RULES,
        example=EMAIL,
        headers=(ONCE,),
        replies={
            201: Reply(
                description="It is stored.",
                type=Enqueued,
                example=Enqueued(41, "created"),
                headers=(LOCATION, REPLAYED),
                links=AFTER,
            ),
            200: Reply(
                description="A job with this key was there: `what` says what became of it.",
                type=Enqueued,
                example=Enqueued(41, "kept"),
                headers=(LOCATION, REPLAYED),
            ),
        },
        errors=("in-flight", "key-reused"),
    ),
    Operation(
        method="POST",
        path="/api/v1/jobs/batch",
        handler=jobs.create_jobs,
        group=GROUP,
        scope="enqueue",
        summary="Create many jobs",
        description="All of them or none, in order, in one step of the store. What is wrong is named with its place: "
        "`jobs[3].priority`.",
        request=jobs.BatchRequest,
        example={"jobs": [EMAIL, {"queue": "reports", "payload": {"month": "2029-12"}, "delay": 60}]},
        headers=(ONCE,),
        replies={
            201: Reply(
                description="They are stored; an item for each, in the order of the request.",
                type=Items[Enqueued],
                example=Items([Enqueued(41, "created"), Enqueued(42, "created")]),
                headers=(REPLAYED,),
            )
        },
        errors=("in-flight", "key-reused"),
    ),
    Operation(
        method="GET",
        path="/api/v1/jobs",
        handler=jobs.list_jobs,
        group=GROUP,
        summary="List jobs",
        description="By queue, state and id. A page may have fewer items than `limit`, or none, and still have a "
        "`next`: no request looks at more than 1,000 jobs. The last page has `next` null.",
        query=jobs.JobsQuery,
        query_example={"queue": "emails", "state": "ready", "limit": 50},
        replies={
            200: Reply(
                description="A page.",
                type=Page[JobView],
                example=Page([VIEW], "k6ZlbWFpbHOldGFrZW4p"),
                links=(Link("listJobs", {"cursor": "$response.body#/next"}),),
            )
        },
    ),
    Operation(
        method="GET",
        path="/api/v1/jobs/{id}",
        handler=jobs.get_job,
        group=GROUP,
        summary="Everything about a job",
        description="Secret fields of its payload are shown as `•••`.",
        path_type=JobPath,
        path_example=ONE,
        replies={200: Reply(description="The job.", type=JobView, example=VIEW)},
        errors=("not-found",),
    ),
    Operation(
        method="PATCH",
        path="/api/v1/jobs/{id}",
        handler=jobs.change_job,
        group=GROUP,
        scope="admin",
        summary="Change the priority of a job",
        description="Of one that waits: a running one has its place no more.",
        path_type=JobPath,
        path_example=ONE,
        request=jobs.ChangeRequest,
        example={"priority": "CRITICAL"},
        replies={200: Reply(description="The job.", type=JobView, example=VIEW)},
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="DELETE",
        path="/api/v1/jobs/{id}",
        handler=jobs.delete_job,
        group=GROUP,
        scope="admin",
        summary="Delete a job",
        description="In whatever state. A running one loses its lease, and its outcome is refused.",
        path_type=JobPath,
        path_example=ONE,
        replies={204: GONE},
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="POST",
        path="/api/v1/jobs/{id}/cancel",
        handler=jobs.cancel_job,
        group=GROUP,
        scope="admin",
        summary="Cancel a job",
        description="Takes a job back that waits or runs. One that runs is told within about a second, and its outcome "
        "is refused. One that has ended is a conflict: delete it.",
        path_type=JobPath,
        path_example=ONE,
        replies={204: GONE},
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="POST",
        path="/api/v1/jobs/{id}/retry",
        handler=jobs.retry_job,
        group=GROUP,
        scope="admin",
        summary="Run a job again, or now",
        description="A dead job is ready again. One that waits for its start time or for its next try is ready now. "
        "One that is ready, runs or is done is a conflict.",
        path_type=JobPath,
        path_example=ONE,
        replies={200: Reply(description="The job, ready again.", type=JobView, example=RETRIED)},
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="PUT",
        path="/api/v1/jobs/{id}/progress",
        handler=jobs.set_progress,
        group=GROUP,
        scope="work",
        summary="Say how far a job is",
        path_type=JobPath,
        path_example=ONE,
        request=jobs.ProgressRequest,
        example={"fraction": 0.4, "message": "12 of 30 pages"},
        replies={204: Reply(description="It is noted.")},
        errors=("not-found", "conflict"),
    ),
    Operation(
        method="GET",
        path="/api/v1/jobs/{id}/result",
        handler=jobs.get_result,
        group=GROUP,
        summary="The result of a job",
        description="With `wait` it answers when the job has ended, or after that many seconds. 200: it is done, and "
        "this is its result. 202: it has not ended; ask again. 404: it was never there, or ended and was not kept "
        "(`keepFor`), or was deleted. 409: it is dead, and `reason` says why; or it will not be kept, so that nobody "
        "could wait for it.",
        path_type=JobPath,
        path_example=ONE,
        query=jobs.ResultQuery,
        query_example={"wait": 0},
        replies={
            200: Reply(
                description="It is done.", type=jobs.JobResult, example=jobs.JobResult(41, "done", {"sent": True})
            ),
            202: Reply(
                description="It has not ended: ask again.", type=jobs.JobResult, example=jobs.JobResult(41, "taken")
            ),
        },
        errors=("not-found", "dead", "conflict"),
    ),
)
