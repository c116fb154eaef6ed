"""From the values of a source to typed settings, or to errors that name the line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from accoda.errors import SettingsError
from accoda.settings.knobs import suggest
from accoda.settings.paths import ROOT, Path, SettingPath, parse_path

_DEPTH = 16  # more than any path has: deeper nesting is refused before it costs anything


class Value(NamedTuple):
    """The value of a setting (an int, a float in seconds, or None), and the source that gives it."""

    value: Any
    source: str


class Entry(NamedTuple):
    """What one line says: a path, with or without the service, and the value as it was written."""

    path: Path
    raw: object
    source: str


class Found(NamedTuple):
    """What a source holds for one service. Values are used in spite of `warnings`."""

    values: Mapping[SettingPath, Value]
    warnings: tuple[str, ...] = ()


def flatten(table: Mapping[str, object], source: Callable[[Path], str], path: Path = ()) -> Iterator[Entry]:
    """The leaves of nested tables, each with its path."""
    for key, raw in table.items():
        here = (*path, key)
        if not isinstance(raw, dict):
            yield Entry(here, raw, source(here))
        elif len(here) < _DEPTH:
            yield from flatten(raw, source, here)
        else:
            raise SettingsError(f"{source(here)}: tables are nested more than {_DEPTH} deep; no setting is")


def gather(entries: Iterable[Entry], service: Path, file: str, shared: bool = False) -> Found:
    """What a file holds for the service. Settings of other services (`billing/worker/queue/…`) are ignored.

    In a file of our own anything unknown is a mistake, and then none of it is used. In a file that many programs share,
    an unknown setting under our path is only a warning: the file is changed before the programs that read it, and a
    knob of the next version must not stop this one.
    """
    general: dict[SettingPath, Value] = {}
    special: dict[SettingPath, Value] = {}
    problems: list[str] = []
    warnings: list[str] = []
    others: dict[str, None] = {}
    for entry in entries:
        own = entry.path[: len(service) + 1] == (*service, ROOT[0])
        path = entry.path[len(service) :] if own else entry.path
        if path[: len(ROOT)] != ROOT:
            if other := _other_service(path):
                others[other] = None
            elif not shared:
                unknown = "/".join(path)[:120]
                problems.append(f"{entry.source}: unknown setting {unknown!r}, {_suggest_root(path, service)}")
            continue
        try:
            place = parse_path(path)
        except ValueError as error:
            if not shared:
                problems.append(f"{entry.source}: {error}")
            elif entry.raw != "":  # a node that only holds others has an empty value
                warnings.append(f"{entry.source}: {error}")
            continue
        try:
            # The first of equal paths counts, as in a lookup in a CDB file; TOML and YAML refuse a second.
            (special if own else general).setdefault(place, Value(place.kind.read(entry.raw), entry.source))
        except ValueError as error:
            problems.append(f"{entry.source}: {error}")
    if problems:
        raise SettingsError(*problems)
    values = general | special  # a value under the service's name beats one for all services
    if others and not values and not shared:
        name, names = "/".join(service), ", ".join(others)
        warnings.append(f"{file}: nothing in it is for service {name!r}, only for {names}; see ACCODA_SERVICE")
    return Found(values, tuple(warnings))


def _other_service(path: Path) -> str | None:
    for start in range(1, len(path) - len(ROOT)):
        if path[start : start + len(ROOT)] == ROOT:
            return "/".join(path[:start])
    return None


def _suggest_root(path: Path, service: Path) -> str:
    if path[0] == ROOT[0]:
        return suggest(path[1], (ROOT[1],)) if len(path) > 1 else "the path is worker/queue/{name}/{setting}"
    if path[0] == service[0] and len(path) > len(service):
        return suggest(path[len(service)], (ROOT[0],))
    return suggest(path[0], (ROOT[0], service[0]))
