"""A YAML file as a tree with places. Nothing is constructed: a tag can do nothing, and a scalar is the text it was.

Read as YAML 1.2 does: `no` and `on` are words, `0o17` is a number and `017` is seventeen. Aliases, tags, second
documents, doubled keys and files beyond the limits are refused: a few aliases can stand for millions of values.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from accoda.contract.problems import Place, Problems, shown
from accoda.errors import ContractError

MOST_BYTES = 1 << 20
MOST_NODES = 100_000
MOST_DEPTH = 10

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BARE_LIST = re.compile(r":\s*\[\][a-z]")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


class Scalar(Struct, frozen=True):
    """A text, a number, a truth value or nothing, by the rules of YAML 1.2."""

    place: Place
    value: str | int | float | bool | None
    text: str


class Entries(Struct, frozen=True):
    """A mapping: each key once, with its own place."""

    place: Place
    items: dict[str, tuple[Place, Node]]


class Items(Struct, frozen=True):
    """A list."""

    place: Place
    items: list[Any]


Node = Scalar | Entries | Items


def read(data: bytes, file: str) -> tuple[Node | None, Problems]:
    """The tree of a file (None: it is empty), and what was wrong with its YAML but could be passed over."""
    problems = Problems(file)
    text = _text(data, problems)
    yaml = _yaml()
    # The C parser where there is one: the other is the same, and slower.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    reader = _Reader(problems)
    try:
        for event in yaml.parse(text, Loader=loader):
            reader.see(type(event).__name__, event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)
        problems.add(place, f"this is not valid YAML: {error.problem or error.context}{_hint(text, place)}")
    except yaml.YAMLError as error:
        problems.add(Place(1, 1), f"this is not valid YAML: {str(error).splitlines()[0]}")
    except (_Stop, RecursionError):
        pass
    else:
        return reader.root, problems
    raise ContractError(problems.sorted())


def _hint(text: str, place: Place) -> str:
    """The mistake that is made most: `[]byte` without quotes is a list with a word behind it."""
    lines = text.splitlines()
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    return '; write types such as "[]byte" in quotes' if _BARE_LIST.search(line) else ""


def _text(data: bytes, problems: Problems) -> str:
    if len(data) > MOST_BYTES:
        problems.add(Place(1, 1), f"the file has {len(data):,} bytes; a contract may have {MOST_BYTES:,}")
        raise ContractError(problems.sorted())
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = Place(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        problems.add(place, f"the byte 0x{data[error.start]:02x} is no UTF-8; save the file as UTF-8")
        raise ContractError(problems.sorted()) from None


def _yaml() -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        problem = Problems("contract")
        problem.add(Place(1, 1), "reading it needs PyYAML; install it with: pip install 'accoda[yaml]'")
        raise ContractError(problem.sorted()) from error
    return yaml


class _Stop(Exception):
    """What follows cannot be read, or must not be."""


class _Open:
    """A collection that is being read."""

    def __init__(self, node: Entries | Items) -> None:
        self.node = node
        self.key: tuple[str, Place] | None = None


class _Reader:
    """Builds the tree from the parser's events. Limits are checked as things begin, so a bomb costs its first bytes."""

    def __init__(self, problems: Problems) -> None:
        self.root: Node | None = None
        self._problems = problems
        self._open: list[_Open] = []
        self._count = 0
        self._documents = 0

    def see(self, kind: str, event: Any) -> None:
        place = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        match kind:
            case "AliasEvent":
                self._stop(place, f"aliases (*{event.anchor[:40]}) are not read; write the value out")
            case "DocumentStartEvent":
                self._documents += 1
                if self._documents > 1:
                    self._stop(place, "a second document begins here; write one contract in a file")
            case "MappingStartEvent" | "SequenceStartEvent" | "ScalarEvent":
                self._begin(kind, event, place)
            case "MappingEndEvent" | "SequenceEndEvent":
                self._open.pop()

    def _begin(self, kind: str, event: Any, place: Place) -> None:
        if event.tag not in (None, "!"):
            self._stop(place, f"the tag {shown(event.tag)} means nothing in a contract; remove it")
        self._count += 1
        if self._count > MOST_NODES:
            self._stop(place, f"the file has more than {MOST_NODES:,} values; a contract may have no more")
        if len(self._open) >= MOST_DEPTH:
            self._stop(place, f"this is nested more than {MOST_DEPTH} deep; a contract is flatter")
        parent = self._open[-1] if self._open else None
        if parent is not None and isinstance(parent.node, Entries) and parent.key is None:
            self._key(kind, event, place, parent)
            return
        node = _node(kind, event, place)
        self._put(parent, node)
        if not isinstance(node, Scalar):
            self._open.append(_Open(node))

    def _key(self, kind: str, event: Any, place: Place, parent: _Open) -> None:
        if kind != "ScalarEvent":
            self._stop(place, "a list or mapping cannot be a name; write a word and a colon")
        parent.key = (event.value, place)

    def _put(self, parent: _Open | None, node: Node) -> None:
        if parent is None:
            self.root = node
        elif isinstance(parent.node, Items):
            parent.node.items.append(node)
        else:
            assert parent.key is not None
            (name, place), parent.key = parent.key, None
            if name in parent.node.items:
                first = parent.node.items[name][0]
                text = f"{shown(name)} is here a second time, first in line {first.line}; remove one"
                self._problems.add(place, text)
            else:
                parent.node.items[name] = (place, node)

    def _stop(self, place: Place, text: str) -> None:
        self._problems.add(place, text)
        raise _Stop


def _node(kind: str, event: Any, place: Place) -> Node:
    if kind == "MappingStartEvent":
        return Entries(place, {})
    if kind == "SequenceStartEvent":
        return Items(place, [])
    plain = not event.style
    return Scalar(place, _value(event.value) if plain else event.value, event.value)


def _value(text: str) -> str | int | float | bool | None:
    """What a plain scalar means in YAML 1.2's core schema."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) <= 400:  # a longer one is no number that anything here takes
        if _INT.fullmatch(text):
            return int(text, 8) if text.startswith("0o") else int(text, 16) if text.startswith("0x") else int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text
