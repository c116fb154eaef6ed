"""Secret fields of a schedule's payload: what is shown instead, and what happens if that is sent back. Pure.

A client that reads a schedule, changes its times and sends it back whole sends `•••` where the secrets were. That never
becomes the value: the stored value stays, or, if it is not clear which that is, the change is refused.
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
    """A payload as it is shown. A record that is stored as a list has no field names: all of it is hidden.

    >>> shown({"card": "4111", "to": ["Anna", "+39 06"]}, ["card", "to.phone"])
    {'card': '•••', 'to': '•••'}
    """
    return _without_lists(hidden(payload, secret), _paths(secret))


def restored(payload: Any, stored: Any, secret: Sequence[str]) -> Any:
    """A payload with the stored values where it says `•••` in the place of a secret.

    >>> restored({"card": "•••", "sum": 3}, {"card": "4111", "sum": 2}, ["card"])
    {'card': '4111', 'sum': 3}
    """
    return _restored(payload, stored, _paths(secret), "payload") if secret else payload


def _restored(value: Any, stored: Any, paths: list[Path], where: str) -> Any:
    if value == HIDDEN and paths:
        if stored is MISSING:
            raise _refusal(where, "and nothing is stored there")
        return stored
    if isinstance(value, (list, tuple)):
        if not any(found == HIDDEN for path in paths for found in _along(value, path)):
            return value
        # Elements have no names, and one that moved would get the secret of another: so the list must be unchanged.
        if value != shown(stored, [".".join(path) for path in paths]):
            raise _refusal(where, "in a list that is not as it is stored")
        return stored
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for name in _names(paths, value):
        inner = stored.get(name, MISSING) if isinstance(stored, dict) else MISSING
        found[name] = _restored(value[name], inner, _below(paths, name), f"{where}.{name}")
    return found


def _along(value: Any, path: Path) -> Iterator[Any]:
    """All values along a path, and at its end."""
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
    return {**value, **{name: _without_lists(value[name], _below(paths, name)) for name in _names(paths, value)}}


def _names(paths: list[Path], value: dict[Any, Any]) -> list[str]:
    """The fields through which the paths go next, in order, so that errors are the same each time."""
    return [name for name in dict.fromkeys(path[0] for path in paths if path) if name in value]


def _below(paths: list[Path], name: str) -> list[Path]:
    return [path[1:] for path in paths if path and path[0] == name]


def _paths(secret: Sequence[str]) -> list[Path]:
    return [tuple(name.split(".")) for name in secret]


def _refusal(where: str, why: str) -> InvalidInput:
    return InvalidInput(
        "payload", f"{where} says {HIDDEN!r}, which only stands for a secret, {why}; give the value itself"
    )
