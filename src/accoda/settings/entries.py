"""From what a source says, line by line, to typed values, or to complaints that name the line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from accoda.errors import SettingsError
from accoda.settings.knobs import guess
from accoda.settings.places import ROOT, Path, Place, locate

_DEPTH = 16  # more than any path has: deeper nesting is refused before it costs anything


class Value(NamedTuple):
    """A setting as it stands: an int, a float (seconds) or None, and the source that says so."""

    value: Any
    source: str


class Entry(NamedTuple):
    """What one line says: a path, with or without the service, and the value as it was written."""

    path: Path
    raw: object
    source: str


class Found(NamedTuple):
    """What a source holds for one service. `warnings` do not keep the values from being used."""

    values: Mapping[Place, Value]
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


def gather(entries: Iterable[Entry], service: Path, file: str) -> Found:
    """What a file of our own holds for the service. Anything unknown in it is a mistake, and then none of it counts.

    Whatever is for another service (`billing/worker/queue/…`) is left alone.
    """
    general: dict[Place, Value] = {}
    special: dict[Place, Value] = {}
    problems: list[str] = []
    others: dict[str, None] = {}
    for entry in entries:
        path, into = _own_part(entry.path, service, general, special)
        if path[: len(ROOT)] == ROOT:
            _place(entry._replace(path=path), into, problems)
        elif other := _other_service(path):
            others[other] = None
        else:
            problems.append(f"{entry.source}: unknown setting {'/'.join(path)[:120]!r}, {_root_guess(path, service)}")
    if problems:
        raise SettingsError(*problems)
    values = general | special  # a value under the service's name beats one for all services
    if others and not values:
        names = ", ".join(others)
        return Found(
            values,
            (f"{file}: nothing in it is for service {'/'.join(service)!r}, only for {names}; see ACCODA_SERVICE",),
        )
    return Found(values)


def gather_shared(entries: Iterable[Entry], service: Path) -> Found:
    """What a file that many programs share holds for the service: all else in it is none of our business.

    A setting that is unknown under our own path is only warned about. The tree is changed before the programs that read
    it: a knob for the next version must not stop this one.
    """
    general: dict[Place, Value] = {}
    special: dict[Place, Value] = {}
    problems: list[str] = []
    warnings: list[str] = []
    for entry in entries:
        path, into = _own_part(entry.path, service, general, special)
        if path[: len(ROOT)] != ROOT:
            continue
        try:
            locate(path)
        except ValueError as error:
            if entry.raw != "":  # a node that only holds others has an empty value
                warnings.append(f"{entry.source}: {error}")
            continue
        _place(entry._replace(path=path), into, problems)
    if problems:
        raise SettingsError(*problems)
    return Found(general | special, tuple(warnings))


def _own_part(
    path: Path, service: Path, general: dict[Place, Value], special: dict[Place, Value]
) -> tuple[Path, dict[Place, Value]]:
    """The path without the service, and where its value belongs."""
    if path[: len(service) + 1] == (*service, ROOT[0]):
        return path[len(service) :], special
    return path, general


def _place(entry: Entry, into: dict[Place, Value], problems: list[str]) -> None:
    try:
        place = locate(entry.path)
        # The first of equal paths counts, as a lookup in a CDB file has it; TOML and YAML refuse a second.
        into.setdefault(place, Value(place.kind.read(entry.raw), entry.source))
    except ValueError as error:
        problems.append(f"{entry.source}: {error}")


def _other_service(path: Path) -> str | None:
    for start in range(1, len(path) - len(ROOT)):
        if path[start : start + len(ROOT)] == ROOT:
            return "/".join(path[:start])
    return None


def _root_guess(path: Path, service: Path) -> str:
    if path[0] == ROOT[0]:
        return guess(path[1], (ROOT[1],)) if len(path) > 1 else "the path is worker/queue/{name}/{setting}"
    if path[0] == service[0] and len(path) > len(service):
        return guess(path[len(service)], (ROOT[0],))
    return guess(path[0], (ROOT[0], service[0]))
