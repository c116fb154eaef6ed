"""Secret fields of a schedule's payload: what is shown instead, and what becomes of that if it comes back. Pure.

Somebody who reads a schedule, changes its times and sends it back whole sends `•••` where the secrets were. That never
becomes the value: what is stored at the same place stays, or, where that cannot be told, the change is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accoda.envelope import HIDDEN, hidden
from accoda.errors import InvalidInput

Path = tuple[str, ...]

MISSING: Any = object()
"""Nothing is stored at that place."""


def shown(payload: Any, secret: Sequence[str]) -> Any:
    """A payload as people see it. Where a record is stored as a list, nobody can tell its fields: all of it is hidden.

    >>> shown({"card": "4111", "to": ["Anna", "+39 06"]}, ["card", "to.phone"])
    {'card': '•••', 'to': '•••'}
    """
    return _without_lists(hidden(payload, secret), _paths(secret))


def kept(payload: Any, stored: Any, secret: Sequence[str]) -> Any:
    """A payload with the stored values where it says `•••` in the place of a secret.

    >>> kept({"card": "•••", "sum": 3}, {"card": "4111", "sum": 2}, ["card"])
    {'card': '4111', 'sum': 3}
    """
    return _kept(payload, stored, _paths(secret), "payload") if secret else payload


def _kept(value: Any, stored: Any, paths: list[Path], where: str) -> Any:
    if value == HIDDEN and paths:
        if stored is MISSING:
            _refuse(where, "and nothing is stored there")
        return stored
    if isinstance(value, (list, tuple)):
        return _kept_list(value, stored, paths, where)
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for name in _names(paths, value):
        below = [path[1:] for path in paths if path and path[0] == name]
        inner = stored.get(name, MISSING) if isinstance(stored, dict) else MISSING
        found[name] = _kept(value[name], inner, below, f"{where}.{name}")
    return found


def _kept_list(value: Sequence[Any], stored: Any, paths: list[Path], where: str) -> Any:
    """Elements have no names. One that moved would get the secret of another, so all must be as they were shown."""
    if not any(_says_hidden(one, paths) for one in value):
        return value
    names = [".".join(path) for path in paths if path]
    there = stored if isinstance(stored, (list, tuple)) else ()
    if [shown(one, names) for one in value] != [shown(one, names) for one in there]:
        _refuse(where, "in a list that is not as it is stored")
    return [_kept(one, old, paths, f"{where}[{at}]") for at, (one, old) in enumerate(zip(value, stored, strict=True))]


def _says_hidden(value: Any, paths: list[Path]) -> bool:
    return any(found == HIDDEN for path in paths for found in _along(value, path))


def _along(value: Any, path: Path) -> Iterator[Any]:
    """All that is met on the way of a path, and at its end."""
    yield value
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _along(one, path)
    elif isinstance(value, dict) and path and path[0] in value:
        yield from _along(value[path[0]], path[1:])


def _without_lists(value: Any, paths: list[Path]) -> Any:
    paths = [path for path in paths if path]
    if not paths:
        return value
    if isinstance(value, (list, tuple)):
        nameless = any(not isinstance(one, (dict, list, tuple)) for one in value)
        return HIDDEN if nameless else [_without_lists(one, paths) for one in value]
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for name in _names(paths, value):
        found[name] = _without_lists(value[name], [path[1:] for path in paths if path[0] == name])
    return found


def _names(paths: list[Path], value: dict[Any, Any]) -> list[str]:
    """The fields that the paths go through next, in their order, so that errors are the same each time."""
    return [name for name in dict.fromkeys(path[0] for path in paths if path) if name in value]


def _paths(secret: Sequence[str]) -> list[Path]:
    return [tuple(name.split(".")) for name in secret]


def _refuse(where: str, why: str) -> None:
    raise InvalidInput(
        "payload", f"{where} says {HIDDEN!r}, which only stands for a secret, {why}; give the value itself"
    )
