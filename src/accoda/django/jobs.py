"""From a call of a task to a job, and how a job says which call it is. No I/O.

| Django            | Accoda                                                                            |
| ----------------- | --------------------------------------------------------------------------------- |
| `queue_name`      | the queue                                                                         |
| the dotted path   | the job's type                                                                    |
| `priority`        | the rank: 100, 50, 0, -50 are CRITICAL, HIGH, NORMAL, LOW, and all others between |
| `run_after`       | the start time                                                                    |
| arguments         | the payload                                                                       |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Protocol

import msgspec
from django.conf import settings
from django.utils import timezone
from msgspec import Struct
from msgspec.structs import replace

from accoda.django import registry
from accoda.django.compat import Task, normalize_json
from accoda.django.options import BackendOptions
from accoda.django.task import UNSAID, named
from accoda.enqueue import EnqueueOptions
from accoda.envelope import unwrap
from accoda.model import NewJob
from accoda.payload import decode
from accoda.priority import AGING_STEP, Priority

PRIORITY, RUN_AFTER, NAME = "django.priority", "django.run-after", "django.name"
"""The headers of a job: what its call said beside Django's defaults, and the name that its result is found by."""
KEY = "django:"
"""Before a name, the key of a job that has no other."""
A_LEVEL = 50
"""How many of Django's priorities are one of ours."""


class Call(Struct):
    """The payload of a job: what its task is called with."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class Maker(Protocol):
    """What makes jobs: the app."""

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob: ...


def new_job(app: Maker, task: Task[..., Any], call: Call, options: BackendOptions, name: str | None) -> NewJob:
    """The job of a call. `name` is what its result is found by, where that is not the job's own id."""
    headers = {NAME: name} if name is not None else {}
    if task.priority:
        headers[PRIORITY] = str(int(task.priority))
    said: EnqueueOptions = {"type": task.module_path, "keep_for": said_or(task, "keep_for", options.keep_for)}
    if task.run_after is not None:
        moment = task.run_after if timezone.is_aware(task.run_after) else timezone.make_aware(task.run_after)
        headers[RUN_AFTER] = moment.isoformat()
        said["at"] = moment
    if headers:
        said["headers"] = headers
    key, lane = named(task, "key", call.args, call.kwargs), named(task, "lane", call.args, call.kwargs)
    if key is not None:
        said["key"], said["on_duplicate"] = key, getattr(task, "on_duplicate", "keep")
    elif name is not None:
        said["key"] = KEY + name
    if lane is not None:
        said["lane"] = lane
    most = said_or(task, "max_attempts", UNSAID)
    if most is not said_or(registry.declared(task), "max_attempts", UNSAID):  # `using` said it
        said["max_attempts"] = most
    if cost := getattr(task, "cost", 0):
        said["cost"] = cost
    job = app.new_job(task.queue_name, call, said)
    return job if not task.priority else replace(job, rank=ranked(job.rank, task.priority))


def ranked(normal: float, priority: int) -> float:
    """The rank of a priority in a queue that gives NORMAL jobs this rank. All 201 priorities keep their order.

    >>> [ranked(2.0, priority) for priority in (100, 50, 0, -50, -100)]
    [0.0, 1.0, 2.0, 3.0, 4.0]
    >>> ranked(1_700_002_000_000.0, 50)  # an aging queue
    1700001000000.0
    """
    step = AGING_STEP if normal > float(Priority.LOW) else 1
    return normal - priority * step / A_LEVEL


def said_or(task: object, name: str, default: Any) -> Any:
    """What a task says of an option, or else what `OPTIONS` says."""
    value = getattr(task, name, UNSAID)
    return default if value is UNSAID else value


def read_call(data: bytes) -> Call:
    """The call of a stored job."""
    return msgspec.convert(decode(data), Call)


def call_of(args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
    """The call, with arguments as JSON has them: what JSON cannot say is a TypeError or ValueError that names it."""
    return Call(
        [_argument(place, value) for place, value in enumerate(args, 1)],
        {name: _argument(name, value) for name, value in kwargs.items()},
    )


def _argument(name: object, value: Any) -> Any:
    try:
        return normalize_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"argument {name}: {error}; give what JSON has: the key of a model, a date as text") from error


def restored(task: Task[..., Any], backend: str, queue: str, data: bytes) -> Task[..., Any]:
    """The task as it was enqueued. Its checks are left out: a queue may have gone from the settings since."""
    headers = unwrap(data)[0].headers
    run_after = headers.get(RUN_AFTER)
    changed = {
        "backend": backend,
        "queue_name": queue,
        "priority": int(headers.get(PRIORITY, "0")),
        "run_after": None if run_after is None else _as_use_tz_says(datetime.fromisoformat(run_after)),
    }
    copy: Task[..., Any] = object.__new__(type(task))
    for field in fields(task):
        object.__setattr__(copy, field.name, changed.get(field.name, getattr(task, field.name)))
    return copy


def _as_use_tz_says(moment: datetime) -> datetime:
    return moment if settings.USE_TZ else timezone.make_naive(moment)
