"""A YAML file as a tree with positions. No objects are constructed: a tag has no effect, and a scalar keeps its text.

Plain scalars follow YAML 1.2: `no` and `on` are words, `0o17` is a number and `017` is seventeen. Aliases, tags, second
documents and files beyond the limits are refused: a few aliases can stand for millions of values.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

MOST_NODES = 100_000
MOST_DEPTH = 16

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


class Position(Struct, frozen=True, order=True):
    """Line and column in the file, counted from 1."""

    line: int
    column: int


class Scalar(Struct, frozen=True):
    """A text, a number, a truth value or nothing."""

    position: Position
    value: str | int | float | bool | None
    text: str


class MappingNode(Struct, frozen=True):
    """A mapping: each key once, with the key's own position."""

    position: Position
    items: dict[str, tuple[Position, Node]]


class ListNode(Struct, frozen=True):
    """A list."""

    position: Position
    items: list[Any]


Node = Scalar | MappingNode | ListNode
Problem = tuple[Position, str]


class YamlError(Exception):
    """The file cannot be read. `position` is None if the problem has no place in it."""

    def __init__(self, position: Position | None, text: str) -> None:
        super().__init__(text)
        self.position = position


def read_tree(text: str) -> tuple[Node | None, list[Problem]]:
    """The tree (None: the file is empty), and the keys that are there twice; any other problem is a `YamlError`."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise YamlError(None, "YAML needs PyYAML; install it with: pip install 'accoda[yaml]'") from None
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same, but faster
    doubled: list[Problem] = []
    try:
        _check_limits(yaml.parse(text, Loader=loader))
        root = yaml.compose(text, Loader=loader)
        return (None if root is None else _convert(root, doubled)), doubled
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # At the end of the file the parser may name the line after the last.
        position = None if mark is None else Position(min(mark.line + 1, len(text.splitlines())), mark.column + 1)
        raise YamlError(position, f"not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise YamlError(None, f"not valid YAML: {str(error).splitlines()[0]}") from error


def _check_limits(events: Any) -> None:
    """Refuse what must not be composed, as soon as it begins, so that a bomb costs its first bytes."""
    documents = depth = 0
    for count, event in enumerate(events):
        kind, problem = type(event).__name__, ""
        documents += kind == "DocumentStartEvent"
        depth += kind in ("MappingStartEvent", "SequenceStartEvent")
        depth -= kind in ("MappingEndEvent", "SequenceEndEvent")
        if kind == "AliasEvent":
            problem = f"aliases (*{event.anchor[:40]}) are not read; write the value out"
        elif getattr(event, "tag", None) not in (None, "!"):
            problem = f"the tag {str(event.tag)[:60]!r} has no meaning here; remove it"
        elif documents > 1:
            problem = "a second document begins here; write one document in a file"
        elif count > MOST_NODES:
            problem = f"the file has more than {MOST_NODES:,} values"
        elif depth > MOST_DEPTH:
            problem = f"this is nested more than {MOST_DEPTH} deep"
        if problem:
            raise YamlError(_position(event), problem)


def _convert(node: Any, doubled: list[Problem]) -> Node:
    position = _position(node)
    if node.id == "scalar":
        return Scalar(position, node.value if node.style else _value(node.value), node.value)
    if node.id == "sequence":
        return ListNode(position, [_convert(item, doubled) for item in node.value])
    items: dict[str, tuple[Position, Node]] = {}
    for key, value in node.value:
        where = _position(key)
        if key.id != "scalar":
            raise YamlError(where, "a list or a mapping cannot be a name; write a word and a colon")
        if key.value in items:
            first = items[key.value][0].line
            doubled.append((where, f"{key.value[:40]!a} is here a second time, first in line {first}; remove one"))
        else:
            items[key.value] = (where, _convert(value, doubled))
    return MappingNode(position, items)


def _value(text: str) -> str | int | float | bool | None:
    """What a plain scalar means in YAML 1.2's core schema."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) <= 400:  # a longer one is no useful number
        if _INT.fullmatch(text):
            return int(text, 8) if text.startswith("0o") else int(text, 16) if text.startswith("0x") else int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def _position(node: Any) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
