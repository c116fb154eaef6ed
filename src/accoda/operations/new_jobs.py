"""New jobs as they are requested on the wire. Everything is checked first; errors name the wire's fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct

from accoda.enqueue import EnqueueOptions, QueueSpec, new_job
from accoda.envelope import HEADERS, HEADERS_LENGTH, NAME_LENGTH, TYPE_LENGTH, TYPE_PATTERN, URL_LENGTH, Event, Hook
from accoda.errors import InvalidInput
from accoda.limits import COST, KEY
from accoda.model import NewJob, check_queue
from accoda.names import is_system
from accoda.operations import moments
from accoda.operations.handlers import spec_of
from accoda.operations.host import Host
from accoda.operations.lanes import LaneName
from accoda.operations.levels import Level
from accoda.payload import converted
from accoda.priority import Priority

Name = Annotated[str, Meta(max_length=128, description="1 to 128 letters, digits, '_', '.' or '-'")]
HeaderName = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH, pattern="^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
HeaderText = Annotated[str, Meta(max_length=HEADERS_LENGTH, pattern="^[^\\x00]*$")]
JobType = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=TYPE_LENGTH,
        description="what kind of work it is: the handler's type",
        extra_json_schema={"pattern": TYPE_PATTERN},
    ),
]
Seconds = Annotated[float, Meta(ge=0, le=1e10, description="seconds")]

# The fields of a job and of its options, as the wire names them.
_ON_THE_WIRE = {
    "at": "scheduledAt",
    "start_at": "scheduledAt",
    "data": "payload",
    "keep_for": "keepFor",
    "max_attempts": "maxRetries",
    "on_duplicate": "onDuplicate",
    "rank": "priority",
    "secret": "secretFields",
    "webhook": "webhookUrl",
}


class NewJobRequest(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, gc=False):
    """A job to be stored; everything is optional. `type` names the handler inside the queue. Without a `queue` it goes
    to the only one that has a handler for its `type`, or else to `default`.

    `scheduledAt` (RFC 3339, with an offset) or `delay` (seconds) say when it may start; `maxRetries` n lets it run
    n + 1 times; `webhookUrl` is called when it has ended as `webhookOn` says; `headers` are texts that
    travel with the job; `secretFields` names fields of the payload that are never shown.
    """

    queue: Name | None = None
    type: JobType | None = None
    name: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)] | None = None
    payload: Any = None
    priority: Level | None = None
    scheduled_at: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    delay: Seconds | None = None
    key: Annotated[str, Meta(min_length=1, max_length=KEY)] | None = None
    on_duplicate: Literal["keep", "rerank", "replace"] | None = None
    cost: Annotated[int, Meta(ge=0, le=COST)] | None = None
    keep_for: Seconds | None = None
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    webhook_url: Annotated[str, Meta(min_length=1, max_length=URL_LENGTH)] | None = None
    webhook_on: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=2)] | None = None
    headers: Annotated[dict[HeaderName, HeaderText], Meta(max_length=HEADERS)] | None = None
    secret_fields: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=50)] = ()
    lane: LaneName | None = None


def prepare(host: Host, requests: Sequence[NewJobRequest], where: str | None = None) -> list[NewJob]:
    """The requested jobs, or the error of the first that cannot be stored.

    With `where` (`jobs`) the error says which request it is: `jobs[3].priority`.
    """
    jobs: list[NewJob] = []
    try:
        for request in requests:
            jobs.append(_job(host, request))  # noqa: PERF401  # the error names the number of those before it
    except InvalidInput as error:
        _rename(error, "" if where is None else f"{where}[{len(jobs)}].")
        raise
    return jobs


def check_not_system(field: str, queue: str) -> None:
    """Refuse a system queue as the place for a user's jobs."""
    if is_system(queue):
        raise InvalidInput(field, f"{queue!r} is a system queue; names that begin with 'accoda.' are Accoda's own")


def check_not_of_demand(host: Host, field: str, queue: str) -> None:
    """Refuse the queue of a demand, and its companions (`deals.deliver`)."""
    if queue.partition(".")[0] in host.demands:
        raise InvalidInput(field, f"{queue!r} belongs to a demand: its jobs are made by requests of a key, in code")


def _job(host: Host, request: NewJobRequest) -> NewJob:
    queue = _checked_queue(host, request.queue)
    spec = spec_of(host, queue, request.type)
    if request.secret_fields:
        spec = msgspec.structs.replace(spec, secret=tuple(dict.fromkeys((*spec.secret, *request.secret_fields))))
    return new_job(spec, _fitted(spec, request.payload), host.now, _options(request))


def _fitted(spec: QueueSpec, payload: object) -> object:
    """The payload as the handler's type: what is bytes or a moment there is text in JSON."""
    wanted = getattr(getattr(spec.encode, "__self__", None), "type", Any)
    return payload if wanted is Any else converted(payload, wanted)


def _options(request: NewJobRequest) -> EnqueueOptions:
    names = ("delay", "key", "on_duplicate", "cost", "keep_for", "name", "headers", "type", "lane")
    said = {name: getattr(request, name) for name in names}
    options = {name: value for name, value in said.items() if value is not None}
    if request.priority is not None:
        options["priority"] = Priority[request.priority]
    if request.scheduled_at is not None:
        if request.delay is not None:
            raise InvalidInput("delay", "give either delay or scheduledAt, not both")
        options["at"] = moments.read("scheduledAt", request.scheduled_at)
    if request.on_duplicate is not None and request.key is None:
        raise InvalidInput("onDuplicate", "needs a key: jobs are kept or replaced by their key")
    if request.max_retries is not None:
        options["max_attempts"] = request.max_retries + 1
    if request.webhook_url is not None:
        on = request.webhook_on
        options["webhook"] = Hook(request.webhook_url, *(() if on is None else (tuple(dict.fromkeys(on)),)))
    elif request.webhook_on is not None:
        raise InvalidInput("webhookOn", "needs a webhookUrl")
    return cast(EnqueueOptions, options)


def _checked_queue(host: Host, queue: str | None) -> str:
    if queue is None:
        raise InvalidInput("queue", "is missing")  # `default_queue` fills it in
    check_queue(queue)
    check_not_system("queue", queue)
    check_not_of_demand(host, "queue", queue)
    return queue


def _rename(error: InvalidInput, prefix: str) -> None:
    """Name the field as on the wire, and say which job it belongs to."""
    problem = str(error).removeprefix(f"{error.field}: ")
    error.field = prefix + _ON_THE_WIRE.get(error.field, error.field)
    error.args = (f"{error.field}: {problem}",)
