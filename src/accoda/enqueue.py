"""From what a user writes when enqueueing to a `NewJob`. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypedDict, get_args

from msgspec import Struct
from msgspec.structs import replace

from accoda.envelope import NOTHING, Event, Hook, JobMetadata, check_headers, check_metadata, wrap
from accoda.errors import InvalidInput
from accoda.limits import COST
from accoda.model import NewJob, OnDuplicate
from accoda.payload import encode
from accoda.priority import Policy, Priority, read_priority, strict
from accoda.times import milliseconds, seconds


class EnqueueOptions(TypedDict, total=False):
    """What may be said of a job when it is enqueued. All of it is optional, and all of it combines.

    `priority` is a `Priority`, or its name in any case: `"HIGH"`. `delay` (seconds or a timedelta) or `at` (a datetime
    with a time zone, or milliseconds) say when it may start. `key` makes it one of a kind in its queue; `on_duplicate`
    says what happens to a second one. `keep_for` keeps the finished job and its result that many seconds; without it,
    the handler's own `keep_for` holds. `type` names the handler inside the queue; a job without one has the queue's
    only handler. `headers` are texts that travel with the job, such as a tenant or a trace. `name` is for people,
    `max_attempts` wins over the handler's own limit, and `webhook` (a URL, or a `Hook` that says after which ends) is
    called when the job is done or dead. `lane` says whom the job belongs to, such as a customer or a host: see `Lanes`.
    """

    priority: Priority | str
    delay: float | timedelta | None
    at: datetime | int | None
    key: str | None
    on_duplicate: OnDuplicate
    waiter: bytes | None
    cost: int
    keep_for: float | timedelta | None
    type: str | None
    headers: Mapping[str, str] | None
    name: str | None
    max_attempts: int | None
    webhook: str | Hook | None
    lane: str | None


class FollowUpOptions(EnqueueOptions, total=False):
    """What may be said of a follow-up: `inherit_headers` gives it the headers of the job that it follows, too."""

    inherit_headers: bool


class Draft(Struct, frozen=True):
    """A job that is about to be made, for `App(enqueue_middleware=[…])`: add to its headers."""

    queue: str
    type: str | None
    payload: Any
    headers: dict[str, str]


EnqueueMiddleware = Callable[[Draft], None]
"""A plain function that is called for every job that an app makes, before it is stored."""

Cost = int | str | Callable[[Any], int]
"""What a job costs: a number, the name of the payload's field that says it, or a function of the payload."""


class QueueSpec(Struct, frozen=True):
    """What a handler says of its jobs, for the producer's side. `type`: it is only for jobs of this type.
    `result` is the type of what the handler returns. `middleware` may add headers to each job."""

    queue: str
    policy: Policy = strict
    encode: Callable[[object], bytes] = encode
    keep_for: float = 0.0
    cost: Cost = 0
    secret: tuple[str, ...] = ()
    type: str | None = None
    result: Any = Any
    middleware: tuple[EnqueueMiddleware, ...] = ()


class Encoded(Struct, frozen=True):
    """A payload that is encoded already, or will be known only later: nothing checks that it fits, and it costs 0
    unless its handler names a number."""

    data: bytes


class _Common(Struct, frozen=True):
    """What the options say, checked: the same for every job of a call. `cost` None: each payload has its own."""

    rank: float
    delay: float | None
    start_at: int | None
    cost: int | None
    key: str | None
    on_duplicate: OnDuplicate
    waiter: bytes | None
    keep_for: float
    lane: str | None
    metadata: JobMetadata


def new_job(spec: QueueSpec, payload: object, now: Callable[[], int], options: EnqueueOptions) -> NewJob:
    """One job. `now` is only asked for the rank of an `aging` queue: start times are the storage's."""
    return _new_job(spec, payload, _common(spec, now, options))


def new_jobs(
    spec: QueueSpec, payloads: Iterable[object], now: Callable[[], int], options: EnqueueOptions
) -> list[NewJob]:
    """A job for each payload, or the error of the first that cannot be one, which says which payload it is."""
    common = _common(spec, now, options)
    jobs: list[NewJob] = []
    for payload in payloads:
        try:
            jobs.append(_new_job(spec, payload, common))
        except InvalidInput as error:
            if error.field == "payload":  # the options are the same for all
                error.args = (f"payloads[{len(jobs)}]: {str(error).removeprefix('payload: ')}; none was enqueued",)
            raise
    return jobs


def _new_job(spec: QueueSpec, payload: object, common: _Common) -> NewJob:
    data = payload.data if isinstance(payload, Encoded) else spec.encode(payload)
    metadata = common.metadata if not spec.middleware else _drafted(spec, payload, common.metadata)
    return NewJob(
        spec.queue,
        data if metadata is NOTHING else wrap(data, metadata),
        rank=common.rank,
        delay=common.delay,
        start_at=common.start_at,
        cost=common.cost if common.cost is not None else cost_of(spec.cost, payload),
        key=common.key,
        on_duplicate=common.on_duplicate,
        waiter=common.waiter,
        keep_for=common.keep_for,
        lane=common.lane,
    )


def _common(spec: QueueSpec, now: Callable[[], int], options: EnqueueOptions) -> _Common:
    if not options.keys() <= _OPTIONS:
        unknown = options.keys() - _OPTIONS
        if "connection" in unknown:
            raise InvalidInput("connection", NO_CONNECTION)
        names = ", ".join(EnqueueOptions.__annotations__)
        raise InvalidInput(min(unknown), f"there is no such option; use {names}")
    delay, at, keep_for = options.get("delay"), options.get("at"), options.get("keep_for")
    if delay is not None and at is not None:
        raise InvalidInput("at", "give either delay or at, not both")
    start_at = None if at is None else milliseconds("at", at)
    delay = None if delay is None else seconds("delay", delay)
    priority = options.get("priority", Priority.NORMAL)
    level = priority if type(priority) is Priority else read_priority(priority)
    return _Common(
        _rank(spec.policy, level, now, delay, start_at),
        delay,
        start_at,
        options["cost"] if "cost" in options else spec.cost if type(spec.cost) is int else None,
        options.get("key"),
        options.get("on_duplicate", "keep"),
        options.get("waiter"),
        spec.keep_for if keep_for is None else seconds("keep_for", keep_for),
        options.get("lane"),
        _metadata(spec, options),
    )


def _rank(policy: Policy, level: Priority, now: Callable[[], int], delay: float | None, start_at: int | None) -> float:
    if policy is strict:  # the level alone: no moment is needed
        return float(level)
    # A job that starts later is as old as its start: an aging queue counts its wait from there.
    moment = now()
    since = start_at if start_at is not None else moment + round((delay or 0.0) * 1000)
    return policy(level, max(moment, since))


def cost_of(cost: Cost, payload: object) -> int:
    """What a job with this payload costs.

    >>> cost_of("pages", {"pages": 7}), cost_of(len, ["a", "b"])
    (7, 2)
    """
    if isinstance(cost, int):
        return cost
    if isinstance(payload, Encoded):
        return 0
    if isinstance(cost, str):
        found = payload.get(cost) if isinstance(payload, Mapping) else getattr(payload, cost, None)
        whence = f"the payload's field {cost!r}"
    else:
        found, whence = cost(payload), f"{getattr(cost, '__name__', cost)!s}(payload)"
    if type(found) is not int or not 0 <= found <= COST:
        raise InvalidInput("cost", f"{whence} must be an integer from 0 to 2**53, not {found!r:.60}")
    return found


def _metadata(spec: QueueSpec, options: EnqueueOptions) -> JobMetadata:
    """What travels with the payload. Most jobs have none, or a type alone."""
    type = options.get("type")
    if options.keys().isdisjoint(_METADATA) and (type is None or isinstance(type, str)):
        return NOTHING if type is None and not spec.secret else _of_type(type, spec.secret)
    webhook = options.get("webhook")
    if webhook is not None:
        webhook = _hook(webhook)
    headers = options.get("headers")
    if headers is not None:
        check_headers(headers)
    return check_metadata(
        JobMetadata(
            type=type,
            headers=dict(headers) if headers else {},
            name=options.get("name"),
            max_attempts=options.get("max_attempts"),
            hook=webhook,
            secret=spec.secret,
        )
    )


@lru_cache(maxsize=1000)
def _of_type(type: str | None, secret: tuple[str, ...]) -> JobMetadata:
    return check_metadata(JobMetadata(type=type, secret=secret))


def _drafted(spec: QueueSpec, payload: object, metadata: JobMetadata) -> JobMetadata:
    """The metadata of one job, after the middleware has seen it."""
    draft = Draft(spec.queue, metadata.type, payload, dict(metadata.headers))
    for layer in spec.middleware:
        layer(draft)
    if draft.headers == metadata.headers:
        return metadata
    check_headers(draft.headers)
    return replace(metadata, headers=draft.headers)


def inherited(headers: Mapping[str, str], options: FollowUpOptions) -> EnqueueOptions:
    """The options of a follow-up to a job with these headers. Its own headers win."""
    if options.pop("inherit_headers", False) and headers:
        own = options.get("headers")
        if own is not None:
            check_headers(own)
        options["headers"] = {**headers, **(own or {})}
    return options


def _hook(given: object) -> Hook:
    from accoda.webhooks.urls import read_url

    hook = Hook(given) if isinstance(given, str) else given
    if not isinstance(hook, Hook) or not hook.on or not set(hook.on) <= set(get_args(Event)):
        raise InvalidInput("webhook", f"must be a URL, or Hook(url, on=('done', 'dead')), not {given!r:.80}")
    try:
        read_url(hook.url)
    except InvalidInput as error:
        raise InvalidInput("webhook", str(error).removeprefix(f"{error.field}: ")) from error
    return hook


NO_CONNECTION = (
    "only what is enqueued at once can be part of a transaction; a follow-up, a node or a tick is stored later, with "
    "the step that it follows"
)
_OPTIONS = EnqueueOptions.__annotations__.keys()
_METADATA = frozenset({"headers", "name", "max_attempts", "webhook"})
