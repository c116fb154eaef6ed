"""From what a user writes when enqueueing to a `NewJob`. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, get_args

from msgspec import Struct

from accoda.envelope import NOTHING, Event, Extras, Hook, check_extras, wrap
from accoda.errors import InvalidInput
from accoda.limits import COST
from accoda.model import NewJob, OnDuplicate
from accoda.payload import encode
from accoda.priority import Policy, Priority, strict
from accoda.times import milliseconds, seconds


class EnqueueOptions(TypedDict, total=False):
    """What may be said of a job when it is enqueued. All of it is optional, and all of it combines.

    `delay` (seconds or a timedelta) or `at` (a datetime with a time zone, or milliseconds) say when it may start.
    `key` makes it one of a kind in its queue; `on_duplicate` says what happens to a second one. `keep_for` keeps the
    finished job and its result that many seconds; without it, the handler's own `keep_for` holds. `name` is for people,
    `max_attempts` wins over the queue's own limit, and `webhook` (a URL, or a `Hook` that says after which ends) is
    called when the job is done or dead.
    """

    priority: Priority
    delay: float | timedelta | None
    at: datetime | int | None
    key: str | None
    on_duplicate: OnDuplicate
    waiter: bytes | None
    cost: int
    keep_for: float | timedelta | None
    name: str | None
    max_attempts: int | None
    webhook: str | Hook | None


Cost = int | str | Callable[[Any], int]
"""What a job costs: a number, the name of the payload's field that says it, or a function of the payload."""


class Line(Struct, frozen=True):
    """What a queue's handler says of its jobs, for the producer's side."""

    queue: str
    policy: Policy = strict
    encode: Callable[[object], bytes] = encode
    keep_for: float = 0.0
    cost: Cost = 0
    secret: tuple[str, ...] = ()


def new_job(line: Line, payload: object, now: int, options: EnqueueOptions) -> NewJob:
    """One job, as told. `now` is only for the rank of an `aging` queue: start times are the storage's."""
    if not options and not line.secret:
        return _plain_job(line, payload, now)
    if not options.keys() <= _OPTIONS:
        unknown = options.keys() - _OPTIONS
        names = ", ".join(EnqueueOptions.__annotations__)
        raise InvalidInput(min(unknown), f"there is no such option; use {names}")
    delay, at, keep_for = options.get("delay"), options.get("at"), options.get("keep_for")
    if delay is not None and at is not None:
        raise InvalidInput("at", "give either delay or at, not both")
    start_at = None if at is None else milliseconds("at", at)
    delay = None if delay is None else seconds("delay", delay)
    # A job that starts later is as old as its start: an aging queue counts its wait from there.
    since = start_at if start_at is not None else now + round((delay or 0.0) * 1000)
    return NewJob(
        line.queue,
        wrap(line.encode(payload), _extras(line, options)),
        rank=line.policy(_level(options.get("priority", Priority.NORMAL)), max(now, since)),
        delay=delay,
        start_at=start_at,
        cost=options["cost"] if "cost" in options else cost_of(line.cost, payload),
        key=options.get("key"),
        on_duplicate=options.get("on_duplicate", "keep"),
        waiter=options.get("waiter"),
        keep_for=line.keep_for if keep_for is None else seconds("keep_for", keep_for),
    )


def new_jobs(line: Line, payloads: Iterable[object], now: int, options: EnqueueOptions) -> list[NewJob]:
    """A job for each payload, or the error of the first that cannot be one, which says the how manieth it is."""
    jobs: list[NewJob] = []
    more = iter(payloads)
    for payload in more:
        try:
            jobs.append(new_job(line, payload, now, options))
            if len(jobs) == 1:
                _like_the_first(line, jobs, more, options)
        except InvalidInput as error:
            if error.field == "payload":  # the options are the same for all
                error.args = (f"payloads[{len(jobs)}]: {str(error).removeprefix('payload: ')}; none was enqueued",)
            raise
    return jobs


def _plain_job(line: Line, payload: object, now: int) -> NewJob:
    """A job of which nothing was said: as most are."""
    return NewJob(
        line.queue,
        line.encode(payload),
        rank=_NORMAL if line.policy is strict else line.policy(Priority.NORMAL, now),
        cost=line.cost if type(line.cost) is int else cost_of(line.cost, payload),
        keep_for=line.keep_for,
    )


def _like_the_first(line: Line, jobs: list[NewJob], payloads: Iterator[object], options: EnqueueOptions) -> None:
    """Add a job for each payload, with what was said of the first one: it is the same for all but data and cost."""
    first, encode, extras = jobs[0], line.encode, _extras(line, options)
    fixed = first.cost if "cost" in options or type(line.cost) is int else None
    queue, rank, delay, start_at, keep_for = first.queue, first.rank, first.delay, first.start_at, first.keep_for
    if first.key is not None or first.waiter is not None or first.on_duplicate != "keep":
        return  # no two of these are alike
    for payload in payloads:
        data = encode(payload) if extras is NOTHING else wrap(encode(payload), extras)
        cost = cost_of(line.cost, payload) if fixed is None else fixed
        jobs.append(NewJob(queue, data, rank=rank, delay=delay, start_at=start_at, cost=cost, keep_for=keep_for))


def cost_of(cost: Cost, payload: object) -> int:
    """What a job with this payload costs.

    >>> cost_of("pages", {"pages": 7}), cost_of(len, ["a", "b"])
    (7, 2)
    """
    if isinstance(cost, int):
        return cost
    if isinstance(cost, str):
        found = payload.get(cost) if isinstance(payload, Mapping) else getattr(payload, cost, None)
        whence = f"the payload's field {cost!r}"
    else:
        found, whence = cost(payload), f"{getattr(cost, '__name__', cost)!s}(payload)"
    if type(found) is not int or not 0 <= found <= COST:
        raise InvalidInput("cost", f"{whence} must be an integer from 0 to 2**53, not {found!r:.60}")
    return found


def _extras(line: Line, options: EnqueueOptions) -> Extras:
    """What travels with the payload: nothing at all for nearly every job."""
    if not line.secret and options.keys().isdisjoint(_EXTRAS):
        return NOTHING
    webhook = options.get("webhook")
    if webhook is not None:
        webhook = _hook(webhook)
    name, most = options.get("name"), options.get("max_attempts")
    return check_extras(Extras(name=name, max_attempts=most, hook=webhook, secret=line.secret))


def _hook(given: object) -> Hook:
    from accoda.webhooks.urls import check_url

    hook = Hook(given) if isinstance(given, str) else given
    if not isinstance(hook, Hook) or not hook.on or not set(hook.on) <= set(get_args(Event)):
        raise InvalidInput("webhook", f"must be a URL, or Hook(url, on=('done', 'dead')), not {given!r:.80}")
    try:
        check_url(hook.url)
    except InvalidInput as error:
        raise InvalidInput("webhook", str(error).removeprefix(f"{error.field}: ")) from error
    return hook


def _level(priority: object) -> Priority:
    if type(priority) is Priority:
        return priority
    try:
        return Priority(priority)  # type: ignore[arg-type]
    except ValueError:
        names = ", ".join(f"Priority.{level.name}" for level in Priority)
        raise InvalidInput("priority", f"must be one of {names}, not {priority!r}") from None


_NORMAL = strict(Priority.NORMAL, 0)
_OPTIONS = EnqueueOptions.__annotations__.keys()
_EXTRAS = frozenset({"name", "max_attempts", "webhook"})
