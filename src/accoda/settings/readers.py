"""Settings in TOML and YAML: every value with its path and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from accoda.errors import SettingsError
from accoda.settings.entries import Entry, flatten
from accoda.settings.paths import Path
from accoda.settings.yaml_tree import ListNode, MappingNode, Scalar, YamlError, read_tree

_LONGEST_LINE = 8192  # a key of very many dots costs the parser the square of its length
_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")


def read_yaml(text: str, file: str) -> list[Entry]:
    """The values of a YAML file. Scalars stay text, so `no`, `on` and `1:30` mean what they say."""
    try:
        root, doubled = read_tree(text)
    except YamlError as error:
        where = file if error.position is None else f"{file}:{error.position.line}"
        raise SettingsError(f"{where}: {error}") from error
    if doubled:
        raise SettingsError(*(f"{file}:{position.line}: {problem}" for position, problem in doubled))
    if root is None or (isinstance(root, Scalar) and root.value is None):
        return []
    if isinstance(root, Scalar):
        raise SettingsError(f"{file}:{root.position.line}: settings must be tables, such as  worker: {{queue: …}}")
    return list(_leaves(root, file))


def _leaves(node: MappingNode | ListNode, file: str, path: Path = ()) -> Iterator[Entry]:
    if isinstance(node, ListNode):
        raise SettingsError(f"{file}:{node.position.line}: a list is no setting")
    for key, (_, value) in node.items.items():
        here = (*path, key)
        if isinstance(value, Scalar):
            yield Entry(here, None if value.value is None else value.text, f"{file}:{value.position.line}")
        else:
            yield from _leaves(value, file, here)


def read_toml(text: str, file: str) -> list[Entry]:
    """The values of a TOML file. Python's parser gives no lines for values, so they are found in a second pass."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > _LONGEST_LINE:
            raise SettingsError(f"{file}:{number}: the line has more than {_LONGEST_LINE} characters")
    document = _loads(text, file)
    lines = dict(_lines(text, document))
    return list(flatten(document, lambda path: f"{file}:{lines[path]}" if path in lines else file))


def _loads(text: str, file: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{file}: values are nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, or Python's own about a number of 5000 digits
        message = str(error)
        at = _AT.search(message)
        where = f"{file}:{at[1]}" if at else file
        reason = message[: at.start()] if at else message
        raise SettingsError(f"{where}: not valid TOML: {reason}" + (f" (column {at[2]})" if at else "")) from error


def _lines(text: str, document: dict[str, object]) -> Iterator[tuple[Path, int]]:
    """Which line gives which value: each line is parsed on its own, below the last table header.

    A line inside a longer text may look like a header or a setting; it counts only if the document has that very table
    or value.
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
