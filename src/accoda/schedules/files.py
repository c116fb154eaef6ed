"""Schedules in a TOML file, and how they are stored.

[schedules.nightly]
cron = "0 3 * * *"
tz = "Europe/Rome"
queue = "reports"
payload = {kind = "daily"}
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from accoda.errors import InvalidInput, SettingsError
from accoda.schedules.declare import as_paused, refresh
from accoda.schedules.model import Schedule, ScheduleView, names_on_the_wire, read_schedule
from accoda.schedules.record import fingerprint
from accoda.schedules.spec import Host, check_no_demand, spec_of
from accoda.schedules.store import Origin, change, delete, list_all
from accoda.storage.protocol import Store

LARGEST = 1 << 20
"""The largest file, in bytes."""


class Changes(Struct, frozen=True):
    """The names of the schedules that `apply` created, changed, left alone and removed."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def read_toml(path: Path | str) -> list[Schedule]:
    """The schedules of a file; `SettingsError` has a line for each mistake, with file, table and key."""
    file = Path(path)
    document = _load(file)
    tables = document.get("schedules")
    if not isinstance(tables, dict) or not tables:
        raise SettingsError(f"{file}: there is no [schedules.NAME] table in it")
    schedules: list[Schedule] = []
    problems = [
        f"{file}: [{name}]: only [schedules.NAME] tables are read here" for name in document.keys() - {"schedules"}
    ]
    for name, table in tables.items():
        try:
            schedules.append(_read(name, table))
        except InvalidInput as error:
            key = _SNAKE.get(error.field, error.field)
            problems.append(f"{file}: [schedules.{name}] {key}: {str(error).removeprefix(f'{error.field}: ')}")
    if problems:
        raise SettingsError(*problems)
    return schedules


async def apply(
    store: Store, schedules: Sequence[Schedule], *, prune: bool = False, app: Host | None = None
) -> Changes:
    """Store the schedules of a file. With `prune`, stored ones that came from a file and are not in it are removed.

    A schedule that was paused stays paused; the file can pause one with `enabled = false`. For `app` see `create`.
    """
    for schedule in schedules:  # before the first is stored
        check_no_demand(app, schedule.queue)
    there = {view.name: view for view in await list_all(store, secrets=True)}
    done: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": [], "removed": []}
    for schedule in schedules:
        view = there.get(schedule.name)
        what = _difference(schedule, view)
        if what != "unchanged":
            wanted = partial(as_paused, schedule)
            await change(store, schedule.name, wanted, Origin(spec_of(app, schedule.queue, schedule.type)))
        elif app is not None and await refresh(app, store, schedule.name):
            what = "changed"
        done[what].append(schedule.name)
    if prune:
        names = {schedule.name for schedule in schedules}
        stale = [view.name for view in there.values() if view.schedule is not None and view.schedule.source == "file"]
        done["removed"] = [name for name in stale if name not in names and await delete(store, name)]
    return Changes(**{what: tuple(names) for what, names in done.items()})


def _difference(schedule: Schedule, view: ScheduleView | None) -> str:
    if view is None or view.state == "ended":
        return "created"
    if view.schedule is None or view.state == "broken":
        return "changed"
    pauses = view.schedule.enabled and not schedule.enabled
    return "changed" if pauses or fingerprint(schedule) != fingerprint(view.schedule) else "unchanged"


def _load(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise SettingsError(f"{file}: it has more than {LARGEST:,} bytes")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror or error}") from error
    except RecursionError:
        raise SettingsError(f"{file}: values are nested too deep") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of 5000 digits
        raise SettingsError(f"{file}: not valid TOML: {error}") from error


def _read(name: str, table: object) -> Schedule:
    if not isinstance(table, dict):
        raise InvalidInput("schedules", f"must be a table; write [schedules.{name}] and its keys below")
    given: dict[str, Any] = {}
    for key, value in table.items():
        wire = _WIRE.get(key, key if key in _SNAKE else None)
        if wire is None or wire in ("name", "source"):
            near = get_close_matches(key, _KEYS, 1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(_KEYS)}"
            raise InvalidInput(key, f"there is no such key; {advice}")
        given[wire] = value
    return read_schedule({"queue": name, **given, "name": name, "source": "file"})


_WIRE = names_on_the_wire()
_SNAKE = {wire: name for name, wire in _WIRE.items()}
_KEYS = tuple(name for name in _WIRE if name not in ("name", "source"))
