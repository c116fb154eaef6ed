"""Settings in TOML. Python's own reader gives no line numbers for values, so they are found by a second look."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from accoda.errors import SettingsError
from accoda.settings.entries import Entry, flatten
from accoda.settings.places import Path

_LONGEST_LINE = 8192  # a key of very many dots costs the reader the square of its length
_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")


def read_toml(text: str, file: str) -> list[Entry]:
    """Every value of the file with its path and line."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > _LONGEST_LINE:
            raise SettingsError(f"{file}:{number}: the line has more than {_LONGEST_LINE} characters; no setting has")
    document = _loads(text, file)
    lines = dict(_lines(text, document))
    return list(flatten(document, lambda path: f"{file}:{lines[path]}" if path in lines else file))


def _loads(text: str, file: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{file}: values are nested too deep; no setting is") from None
    except ValueError as error:  # TOMLDecodeError is one; so is what Python says about a number of 5000 digits
        message = str(error)
        at = _AT.search(message)
        where = f"{file}:{at[1]}" if at else file
        reason = message[: at.start()] if at else message
        raise SettingsError(f"{where}: not valid TOML: {reason}" + (f" (column {at[2]})" if at else "")) from error


def _lines(text: str, document: dict[str, object]) -> Iterator[tuple[Path, int]]:
    """Which line gives which value: each line is read on its own, below the last table header.

    A line inside a longer text could look like a header or a setting; it is believed only if the document has that very
    table or value.
    """
    table: Path = ()
    for number, line in enumerate(text.split("\n"), 1):
        try:
            alone = tomllib.loads(line)
        except (ValueError, RecursionError):
            continue
        if line.lstrip().startswith("["):
            header = _header(alone)
            table = header if isinstance(_at(document, header), dict) else table
            continue
        for entry in flatten(alone, lambda path: ""):
            path = (*table, *entry.path)
            if _at(document, path) == entry.raw:
                yield path, number


def _header(alone: dict[str, object]) -> Path:
    path: list[str] = []
    inside: object = alone
    while isinstance(inside, dict) and inside:
        key, inside = next(iter(inside.items()))
        path.append(key)
    return tuple(path)


def _at(document: object, path: Path) -> object:
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document
