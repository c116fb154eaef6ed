"""Schedules that are declared in code, beside the handler of their jobs: `@app.every("5m")`, `@app.cron("0 7 * * *")`.

A worker stores what its code declares when it starts. What is stored already stays as it is until the declaration
changes, so that a restart moves no tick, and what people changed or paused since holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from msgspec.structs import replace

from accoda.envelope import Event
from accoda.errors import InvalidInput, NotFound, StorageError
from accoda.priority import Priority
from accoda.retry import describe
from accoda.runtime.batch import Batch
from accoda.runtime.handler import Handler, HandlerOptions
from accoda.schedules.lengths import Length
from accoda.schedules.model import CatchUp, Overlap, Schedule, names_on_the_wire
from accoda.schedules.record import fingerprint
from accoda.schedules.secrets import MISSING, kept
from accoda.schedules.store import Known, Seen, change, list_all, look
from accoda.schedules.terms import line_of, terms_from
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")

log = logging.getLogger("accoda.schedules")


class ScheduledOptions(HandlerOptions, total=False):
    """What `@app.every` and `@app.cron` may say beside when: of the schedule, and what `@app.handler` may say too.

    `queue` is the function's name unless told, and `name`, the schedule's, is the queue.
    """

    name: str
    queue: str
    payload: Any
    priority: Priority
    catch_up: CatchUp
    catch_up_limit: int
    overlap: Overlap
    grace: Length
    starts_at: datetime
    ends_at: datetime
    job_name: str
    max_retries: int
    webhook_url: str
    webhook_on: tuple[Event, ...]


class ScheduledDecorator(Protocol):
    """What `@app.every(…)` gives: it makes a function a handler, or takes one that is a handler already."""

    @overload  # a handler is a function too: this form comes first, and wins
    def __call__(self, function: Handler[T, A, R], /) -> Handler[T, A, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[[Batch[T]], R], /) -> Handler[T, Batch[T], R]: ...
    @overload
    def __call__(self, function: Callable[[T], R], /) -> Handler[T, T, R]: ...
    @overload
    def __call__(self, function: Callable[[], R], /) -> Handler[None, None, R]: ...


def declare(app: App, when: dict[str, Any], options: ScheduledOptions) -> ScheduledDecorator:
    """A decorator that declares a schedule for a handler. `when` is `cron` and `tz`, or `every`."""
    ours = {name: value for name, value in options.items() if name in _OURS}
    theirs = {name: value for name, value in options.items() if name not in _OURS}

    def decorate(function: Any) -> Any:
        if isinstance(function, Handler):
            if extra := sorted({*theirs, *({"queue"} & ours.keys())}):
                raise InvalidInput(extra[0], f"{function!r} is a handler already; say it in @app.handler(…)")
            return _add(app, function, when, ours)
        queue = cast(str | None, ours.get("queue"))
        handler = app.handler(queue, **cast(HandlerOptions, theirs))(function)
        try:
            return _add(app, handler, when, ours)
        except BaseException:
            del app.handlers[handler.queue]  # all of it or nothing
            raise

    return cast(ScheduledDecorator, decorate)


def _add(app: App, handler: Handler[Any, Any, Any], when: dict[str, Any], ours: dict[str, Any]) -> Any:
    given = {"name": handler.queue, **ours, **when, "queue": handler.queue, "source": "code"}
    if isinstance(given.get("priority"), Priority):
        given["priority"] = given["priority"].name
    for name in ("every", "grace"):
        if isinstance(given.get(name), timedelta):
            given[name] = given[name].total_seconds()
    schedule = Schedule(**given)
    if schedule.name in app.schedules:
        raise InvalidInput("name", f"{schedule.name!r} is declared already; give this schedule a name of its own")
    # What the handler could not read, or what has no cost, is said now, not at the first tick.
    terms_from(handler.line, schedule)
    kept(schedule.payload, MISSING, handler.line.secret)
    app.schedules[schedule.name] = schedule
    return handler


async def store_declared(app: App, store: Store) -> None:
    """Store what an app declares: what is new, and what was declared otherwise before. What its handlers say of their
    queues is stored anew also for the schedules that people made.

    Many workers may do this at the same moment: what one of them has stored, the others find as they want it.
    """
    for schedule in app.schedules.values():
        try:
            await _store(app, store, schedule)
        except InvalidInput as error:  # it has ended
            log.info("schedule %s is declared but not stored: %s", schedule.name, error)
    for view in await list_all(store):
        if view.schedule is None or view.state == "ended" or view.name in app.schedules:
            continue
        if view.schedule.source == "code":
            log.warning(_STALE, view.name, view.name)
        elif line_of(app, view.schedule.queue) is not None:
            await refresh(app, store, view.name)


async def refresh(app: App, store: Store, name: str) -> bool:
    """Let a schedule that no code declares go by what the app's handler says of its queue now; whether that is new."""
    record = (await look(store, name)).record
    line = None if record is None or record.declared is not None else line_of(app, record.schedule.queue)
    if record is None or line is None:
        return False

    def as_it_is(seen: Seen) -> Schedule:
        if seen.record is None or seen.record.schedule.queue != line.queue:
            raise NotFound("schedule", name)  # somebody has deleted or moved it meanwhile, and that holds
        return seen.record.schedule

    try:
        if terms_from(line, record.schedule) == record.terms and set(line.secret) <= set(record.secret):
            return False
        await change(store, name, as_it_is, Known(line))
    except NotFound:
        return False
    except StorageError:
        raise
    except Exception as error:  # a cost is the user's function: its trouble must stop no worker
        log.warning("schedule %s stays as it is, the handler of its queue refuses it: %s", name, describe(error))
        return False
    log.info("schedule %s goes by what the handler of %s says now", name, line.queue)
    return True


async def _store(app: App, store: Store, schedule: Schedule) -> None:
    line = line_of(app, schedule.queue)
    terms = None if line is None else terms_from(line, schedule)
    mark = fingerprint(schedule, terms, () if line is None else line.secret)
    seen = await look(store, schedule.name)
    if seen.record is not None and seen.record.declared == mark:
        return  # its tick stays where it is, and so does what people changed

    def wanted(seen: Seen) -> Schedule:
        paused = seen.record is not None and not seen.record.schedule.enabled
        return replace(schedule, enabled=False) if paused else schedule

    await change(store, schedule.name, wanted, Known(line, mark))
    log.info("schedule %s is %s as the code declares it", schedule.name, "stored" if seen.id is None else "changed")


_STALE = (
    "schedule %s is stored, but this code does not declare it any more; unless another application does, delete it: "
    "accoda schedules delete %s --yes"
)
_OURS = (ScheduledOptions.__annotations__.keys() - HandlerOptions.__annotations__.keys()) & names_on_the_wire().keys()
