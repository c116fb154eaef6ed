"""Schedules that are declared in code, beside the handler of their jobs: `@app.every("5m")`, `@app.cron("0 7 * * *")`.

A worker stores the schedules of its code when it starts. A stored one stays as it is until its declaration changes, so
that a restart moves no tick, and what people changed or paused since stays so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

from msgspec.structs import replace

from accoda.envelope import Event
from accoda.errors import InvalidInput, NotFound, StorageError
from accoda.handler_options import HandlerOptions
from accoda.priority import Priority, read_priority
from accoda.retry import describe
from accoda.schedules.model import CatchUp, Overlap, Schedule, names_on_the_wire
from accoda.schedules.record import fingerprint
from accoda.schedules.secrets import MISSING, restored
from accoda.schedules.spec import Host, spec_of, stored_spec
from accoda.schedules.store import Current, Origin, change, list_all, look
from accoda.schedules.words import Length
from accoda.storage.protocol import Store

log = logging.getLogger("accoda.schedules")


class ScheduledOptions(HandlerOptions, total=False):
    """The options of `@app.every` and `@app.cron` besides when: those of the schedule, and those of `@app.handler`.

    `queue` is the function's name unless it is given, and `name`, the schedule's, is the queue (and the type, if it has
    one: `work.report`).
    """

    name: str
    queue: str
    payload: Any
    priority: Priority | str
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
    lane: str | None


def declare(app: Host, when: dict[str, Any], options: ScheduledOptions) -> Callable[[Any], Any]:
    """A decorator that declares a schedule for a handler. `when` is `cron` and `tz`, or `every`."""
    ours = {name: value for name, value in options.items() if name in _OURS}
    handlers = {name: value for name, value in options.items() if name not in _OURS}

    def decorate(function: Any) -> Any:
        known = app.handlers.get(getattr(function, "queue", ""))
        if known is not None and known.by_type.get(getattr(function, "type", None)) is function:
            if extra := sorted({*handlers, *({"queue"} & ours.keys())}):
                raise InvalidInput(extra[0], f"{function!r} is a handler already; say it in @app.handler(…)")
            return _add(app, function, when, ours)
        queue = cast(str | None, ours.get("queue"))
        handler = app.add_handler(queue, function, cast(HandlerOptions, handlers))
        try:
            return _add(app, handler, when, ours)
        except BaseException:
            app.remove_handler(handler)  # either both are declared or neither
            raise

    return decorate


def _add(app: Host, handler: Any, when: dict[str, Any], ours: dict[str, Any]) -> Any:
    name = handler.queue if handler.type is None else f"{handler.queue}.{handler.type}"
    given = {"name": name, **ours, **when, "queue": handler.queue, "type": handler.type, "source": "code"}
    if "priority" in given:
        given["priority"] = read_priority(given["priority"]).name
    for name in ("every", "grace"):
        if isinstance(given.get(name), timedelta):
            given[name] = given[name].total_seconds()
    schedule = Schedule(**given)
    if schedule.name in app.schedules:
        raise InvalidInput("name", f"{schedule.name!r} is declared already; give this schedule a name of its own")
    # A payload that the handler cannot read, or that has no cost, is refused now, not at the first tick.
    stored_spec(handler.spec, schedule)
    restored(schedule.payload, MISSING, handler.spec.secret)
    app.schedules[schedule.name] = schedule
    return handler


async def store_declared(app: Host, store: Store) -> None:
    """Store the schedules of an app that are new or whose declaration has changed. Other stored schedules of its queues
    get what its handlers say of them now.

    Many workers may do this at the same moment: what one of them has stored is as the others want it.
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
        else:
            await refresh(app, store, view.name)


async def refresh(app: Host, store: Store, name: str) -> bool:
    """Give a schedule that no code declares what the app's handler says of its queue now; whether that is new."""
    record = (await look(store, name)).record
    if record is None or record.declared is not None:
        return False
    spec = spec_of(app, record.schedule.queue, record.schedule.type)
    if spec is None:
        return False

    def unchanged(current: Current) -> Schedule:
        if current.record is None or current.record.schedule.queue != spec.queue:
            raise NotFound("schedule", name)  # it was deleted or moved meanwhile, and stays so
        return current.record.schedule

    try:
        if stored_spec(spec, record.schedule) == record.spec and set(spec.secret) <= set(record.secret):
            return False
        await change(store, name, unchanged, Origin(spec))
    except NotFound:
        return False
    except StorageError:
        raise
    except Exception as error:  # the cost may be the user's function: its errors must not stop a worker
        log.warning("schedule %s is not changed, the handler of its queue refuses it: %s", name, describe(error))
        return False
    log.info("schedule %s follows what the handler of %s says now", name, spec.queue)
    return True


async def _store(app: Host, store: Store, schedule: Schedule) -> None:
    spec = spec_of(app, schedule.queue, schedule.type)
    said = () if spec is None else (stored_spec(spec, schedule), spec.secret)
    declared = fingerprint(schedule, *said)
    current = await look(store, schedule.name)
    if current.record is not None and current.record.declared == declared:
        return  # neither its tick nor what people changed is touched
    await change(store, schedule.name, lambda current: as_paused(schedule, current), Origin(spec, declared))
    log.info("schedule %s is %s as the code declares it", schedule.name, "stored" if current.id is None else "changed")


def as_paused(schedule: Schedule, current: Current) -> Schedule:
    """The schedule, paused if the current one is."""
    paused = current.record is not None and not current.record.schedule.enabled
    return replace(schedule, enabled=False) if paused else schedule


_STALE = (
    "schedule %s is stored, but this code does not declare it any more; unless another application does, delete it: "
    "accoda schedules delete %s --yes"
)
_OURS = (ScheduledOptions.__annotations__.keys() - HandlerOptions.__annotations__.keys()) & names_on_the_wire().keys()
