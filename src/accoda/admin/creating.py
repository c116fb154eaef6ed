"""From requests to jobs: everything is checked before anything is stored, and errors name the wire's fields.

This is on the way of every job that comes in by HTTP: what is known of a queue is looked up once and kept as a maker,
and a request that says no more than its queue, payload, priority and cost is made a job in a few steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args
from weakref import WeakKeyDictionary

import msgspec

from accoda.admin import moments
from accoda.admin.queues import check_not_system
from accoda.admin.requests import Level, NewJobRequest
from accoda.enqueue import EnqueueOptions, cost_of, new_job
from accoda.envelope import Extras, Hook, check_extras, unwrap, wrap
from accoda.errors import InvalidInput
from accoda.model import NewJob, check_queue
from accoda.payload import name_of
from accoda.priority import Priority, strict

if TYPE_CHECKING:
    from accoda.app import App

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


MOST_MAKERS = 10_000
_LEVELS: tuple[Level | None, ...] = (None, *get_args(Level))


def prepare(app: App, requests: Sequence[NewJobRequest], where: str | None = None) -> list[NewJob]:
    """The jobs that are asked for, or the error of the first that cannot be. With `where` (`jobs`) the error says the
    how manieth it is: `jobs[3].priority`."""
    now = app._now()
    fresh: dict[str | None, _Maker] = {}  # those that were seen to be true in this call
    jobs: list[NewJob] = []
    try:
        for request in requests:
            maker = fresh.get(request.queue) if request.type is None else None
            if maker is None:
                maker = _maker(app, request)
                fresh[maker.queue] = maker
            jobs.append(maker.make(request, now))
    except InvalidInput as error:
        _rename(error, "" if where is None else f"{where}[{len(jobs)}].")
        raise
    return jobs


def prepare_one(app: App, request: NewJobRequest) -> NewJob:
    """The one job that is asked for, or the error why it cannot be."""
    try:
        return _maker(app, request).make(request, app._now())
    except InvalidInput as error:
        _rename(error, "")
        raise


def _maker(app: App, request: NewJobRequest) -> _Maker:
    """What makes the jobs of the request's queue, with all that holds of it at this moment."""
    makers = _makers.get(app)
    if makers is None:
        makers = _makers[app] = {}
    maker = makers.get(request.queue) if request.type is None else None
    if maker is not None and maker.holds(app):
        return maker
    queue = _queue(app, request)
    if len(makers) >= MOST_MAKERS:  # names come from outside: they must not fill the memory
        makers.clear()
    maker = makers[queue] = _Maker(app, queue)
    return maker


class _Maker:
    """Makes the jobs of one queue, whose name was checked."""

    __slots__ = ("cost", "family", "handler", "line", "queue", "ranks", "said", "type")

    def __init__(self, app: App, queue: str) -> None:
        self.queue, self.family = queue, queue.partition(".")[0]
        self.handler, self.said = app.handlers.get(queue), app._lines.get(queue)
        line = self.line = app._line(queue)
        self.type = getattr(getattr(line.encode, "__self__", None), "type", Any)
        # Of a strict queue the rank is the level's alone; of any other it depends on the moment.
        self.ranks = {level: strict(Priority[level or "NORMAL"], 0) for level in _LEVELS}
        self.cost = line.cost if isinstance(line.cost, int) else None

    def holds(self, app: App) -> bool:
        """Whether the app still says the same of the queue."""
        queue = self.queue
        same = app.handlers.get(queue) is self.handler and app._lines.get(queue) is self.said
        return same and self.family not in app.demands

    def make(self, request: NewJobRequest, now: int) -> NewJob:
        line = self.line
        payload = request.payload if self.type is Any else self.fitted(request.payload)
        if _says_more(request) or line.secret:
            return self.make_at_length(request, payload, now)
        cost = request.cost if request.cost is not None else self.cost
        level = request.priority
        return NewJob(
            line.queue,
            line.encode(payload),
            rank=self.ranks[level] if line.policy is strict else line.policy(Priority[level or "NORMAL"], now),
            cost=cost if cost is not None else cost_of(line.cost, payload),
            keep_for=line.keep_for,
        )

    def make_at_length(self, request: NewJobRequest, payload: object, now: int) -> NewJob:
        """The job of a request that says more than most do."""
        job = new_job(self.line, payload, now, _options(request))
        if not request.secret_fields:
            return job
        extras, data = unwrap(job.data)
        secret = tuple(dict.fromkeys((*extras.secret, *request.secret_fields)))
        return msgspec.structs.replace(job, data=wrap(data, check_extras(_with_secret(extras, secret))))

    def fitted(self, payload: object) -> object:
        """The payload as the handler's type: what is bytes or a moment there is text in JSON."""
        try:
            return msgspec.convert(payload, self.type)
        except Exception as error:  # a user's record may raise what it likes
            raise InvalidInput("payload", f"does not fit {name_of(self.type)}: {error}") from error


def _says_more(request: NewJobRequest) -> bool:
    return not (
        request.name is None
        and request.scheduled_at is None
        and request.delay is None
        and request.key is None
        and request.on_duplicate is None
        and request.keep_for is None
        and request.max_retries is None
        and request.webhook_url is None
        and request.webhook_on is None
        and not request.secret_fields
    )


def _options(request: NewJobRequest) -> EnqueueOptions:
    options: EnqueueOptions = {}
    if request.priority is not None:
        options["priority"] = Priority[request.priority]
    if request.scheduled_at is not None:
        if request.delay is not None:
            raise InvalidInput("delay", "give either delay or scheduledAt, not both")
        options["at"] = moments.read("scheduledAt", request.scheduled_at)
    if request.on_duplicate is not None and request.key is None:
        raise InvalidInput("onDuplicate", "needs a key: jobs are kept or replaced by their key")
    if request.on_duplicate is not None:
        options["on_duplicate"] = request.on_duplicate
    if request.cost is not None:
        options["cost"] = request.cost
    if request.name is not None:
        options["name"] = request.name
    if request.max_retries is not None:
        options["max_attempts"] = request.max_retries + 1
    if (hook := _hook(request)) is not None:
        options["webhook"] = hook
    return options | EnqueueOptions(delay=request.delay, key=request.key, keep_for=request.keep_for)


def _hook(request: NewJobRequest) -> Hook | None:
    if request.webhook_url is None:
        if request.webhook_on is not None:
            raise InvalidInput("webhookOn", "needs a webhookUrl")
        return None
    on = request.webhook_on
    return Hook(request.webhook_url) if on is None else Hook(request.webhook_url, tuple(dict.fromkeys(on)))


def _with_secret(extras: Extras, secret: tuple[str, ...]) -> Extras:
    return msgspec.structs.replace(extras, secret=secret)


def _queue(app: App, request: NewJobRequest) -> str:
    """The queue of a request, which may call it its type."""
    field, queue = ("queue", request.queue) if request.type is None else ("type", request.type)
    if queue is None:
        raise InvalidInput("queue", "is missing: say which queue the job is for")
    if request.type is not None and request.queue is not None:
        raise InvalidInput("type", "is another word for queue; give one of them")
    try:
        check_queue(queue)
    except InvalidInput as error:
        raise InvalidInput(field, str(error).removeprefix("queue: ")) from None
    check_not_system(field, queue)
    check_not_of_demand(app, field, queue)
    return queue


def check_not_of_demand(app: App, field: str, queue: str) -> None:
    """Refuse the queue of a demand, and its companions (`deals.deliver`)."""
    if queue.partition(".")[0] in app.demands:
        raise InvalidInput(field, f"{queue!r} belongs to a demand: its jobs are made by requests of a key, in code")


def _rename(error: InvalidInput, prefix: str) -> None:
    """Name the field as on the wire, and say of which job it is."""
    problem = str(error).removeprefix(f"{error.field}: ")
    error.field = prefix + _ON_THE_WIRE.get(error.field, error.field)
    error.args = (f"{error.field}: {problem}",)


_makers: WeakKeyDictionary[App, dict[str | None, _Maker]] = WeakKeyDictionary()
