"""From a contract file to a `Contract`, or to all its mistakes at once.

A contract is data from outside. Its words end up in generated code, so each is checked against the narrowest pattern
possible: names are lower-case ASCII identifiers, types are words of a table, and texts only become string literals.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET

from accoda.contract.generator.code import literal
from accoda.contract.model import FIELD_TYPES, Contract, Field, FieldType, Queue
from accoda.contract.problems import Problems, described, shown
from accoda.contract.queue_settings import KEYS, QueueSettings, read_setting
from accoda.envelope import check_type
from accoda.errors import ContractError, InvalidInput
from accoda.handler_options import QUEUE_WIDE, check_fair
from accoda.settings.knobs import QUEUE_KNOBS, suggest
from accoda.settings.yaml_tree import ListNode, MappingNode, Node, Position, Scalar, YamlError, read_tree

MOST_BYTES = 1 << 20
MOST_QUEUES = 1000
MOST_FIELDS = 256
MOST_ID = 2**31 - 1
MOST_TEXT = 2000
MOST_NAME = 40
MOST_DEFAULT = 60
RESERVED = ("job_id", "attempts", "prev_start_time")

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_BARE_LIST = re.compile(r":\s*\[\][a-z]")
_INT64 = (-(2**63), 2**63 - 1)


def load(path: str | Path) -> Contract:
    """Read a contract file. Raises `ContractError` with every mistake in it."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ContractError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    return parse(data, str(path))


def parse(data: bytes | str, file: str = "contract") -> Contract:
    """Read a contract from its text; `file` is the name in its errors."""
    problems = Problems(file)
    root = _read(data.encode("utf-8", "replace") if isinstance(data, str) else data, problems)
    contract = _Loader(problems).contract(root)
    if problems.found or contract is None:
        raise ContractError(problems.sorted())
    return contract


def _read(data: bytes, problems: Problems) -> Node | None:
    """The tree of a file. Keys that are there twice are added to the problems; other YAML problems end the reading."""
    if len(data) > MOST_BYTES:
        problems.add(Position(1, 1), f"the file has {len(data):,} bytes; a contract may have {MOST_BYTES:,}")
        raise ContractError(problems.sorted())
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        position = Position(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        problems.add(position, f"the byte 0x{data[error.start]:02x} is no UTF-8; save the file as UTF-8")
        raise ContractError(problems.sorted()) from None
    try:
        root, doubled = read_tree(text)
    except YamlError as error:
        position = error.position or Position(1, 1)
        line = (text.splitlines() or [""])[position.line - 1]
        # The most common mistake: `[]byte` without quotes is a list with a word behind it.
        hint = '; write types such as "[]byte" in quotes' if _BARE_LIST.search(line) else ""
        problems.add(position, f"{error}{hint}")
        raise ContractError(problems.sorted()) from error
    for position, problem in doubled:
        problems.add(position, problem)
    return root


class _Loader:
    """Each method returns what it could read of a node, and adds what is wrong with it to the problems."""

    def __init__(self, problems: Problems) -> None:
        self._wrong = problems.add
        self._ids: dict[int, Position] = {}
        self._names: dict[str, Position] = {}
        self._positions: dict[str, Position] = {}

    def contract(self, root: Node | None) -> Contract | None:
        if not isinstance(root, MappingNode):
            position = Position(1, 1) if root is None else root.position
            self._wrong(position, "a contract begins with  queues:  and a list of queues")
            return None
        known: dict[str, Callable[[Node], Any]] = {"queues": _unread, "description": self._text}
        values = self._entries(root, known, "a contract")
        found = root.items.get("queues")
        if found is None:
            self._wrong(root.position, "the contract has no queues; begin it with  queues:  and a list of them")
            return None
        queues = [self._queue(node) for node in self._list(found[1], "queues", "queue", MOST_QUEUES)]
        good = tuple(queue for queue in queues if queue is not None)
        self._check_shared(good)
        return Contract(good, values.get("description", ""))

    # -- queues

    def _queue(self, node: Node) -> Queue | None:
        if not isinstance(node, MappingNode):
            self._wrong(node.position, "a queue is a mapping; write  - id: 1  and below it  name:  and  fields:")
            return None
        known: dict[str, Callable[[Node], Any]] = {
            "id": self._id,
            "name": lambda value: self._name(value, "queue", self._names),
            "queue": lambda value: self._name(value, "queue", {}),
            "type": self._job_type,
            "fields": self._fields,
            "description": self._text,
            **{name: partial(self._setting, name) for name in KEYS},
        }
        values = self._entries(node, known, "a queue", needed=("id", "name", "fields"))
        if values.get("id") is None or values.get("name") is None:
            return None
        settings = QueueSettings(**{name: values.get(name) for name in KEYS})
        fields = tuple(values.get("fields") or ())
        about, shared, kind = values.get("description") or "", values.get("queue"), values.get("type")
        self._positions[values["name"]] = node.position
        return Queue(values["id"], values["name"], fields, about, settings, shared, kind)

    def _setting(self, name: str, node: Node) -> Any:
        return read_setting(name, node, self._wrong)

    def _job_type(self, node: Node) -> str | None:
        word = node.value if isinstance(node, Scalar) else None
        try:
            check_type(word)
        except InvalidInput as error:
            self._wrong(node.position, f"type {str(error).removeprefix('type: ')}")
            return None
        return str(word)

    def _check_shared(self, queues: tuple[Queue, ...]) -> None:
        """Kinds of job that share a queue have a type each, and say the same of the queue."""
        by_type: dict[tuple[str, str | None], str] = {}
        said: dict[tuple[str, str], tuple[Any, str]] = {}
        for queue in queues:
            position, where = self._positions[queue.name], queue.queue_name
            other = by_type.setdefault((where, queue.type_name), queue.name)
            if other != queue.name:
                kind = "no type" if queue.type_name is None else f"the type {queue.type_name!r}"
                self._wrong(
                    position, f"{queue.name} has {kind} in the queue {where!r}, as {other} has; give it its own"
                )
            for name, value in queue.settings.written().items():
                first, whose = said.setdefault((where, name), (value, queue.name))
                if name in QUEUE_WIDE and first != value:
                    words = [each if isinstance(each, str) else json.dumps(each) for each in (value, first)]
                    text = (
                        f"{name} is {words[0]} here and {words[1]} in {whose}; it holds for the whole queue {where!r}"
                    )
                    self._wrong(position, f"{text}: say it once")
        for where in {queue.queue_name for queue in queues}:
            self._check_fair([queue for queue in queues if queue.queue_name == where])

    def _check_fair(self, queues: list[Queue]) -> None:
        """Of the kinds of job in a queue, one may say its policy and another its lanes."""
        policy = next((each.settings.policy for each in queues if each.settings.policy is not None), None)
        for queue in queues:
            try:
                check_fair(policy, queue.settings.lanes)
            except InvalidInput as error:
                self._wrong(self._positions[queue.name], str(error).replace(": ", " ", 1))

    def _id(self, node: Node) -> int | None:
        value = self._number(node)
        if value is None or not 0 < value <= MOST_ID:
            self._wrong(node.position, f"id must be a whole number from 1 to {MOST_ID}, not {described(node)}")
            return None
        return value if self._once(self._ids, value, node.position, f"id {value}") else None

    # -- fields

    def _fields(self, node: Node) -> list[Field]:
        names: dict[str, Position] = {}
        found: list[Field] = []
        first_default = ""
        for item in self._list(node, "fields", "field", MOST_FIELDS):
            field = self._field(item, names)
            if field is None:
                continue
            if first_default and not field.has_default:
                text = f"{field.name} has no default, but {first_default} before it has; "
                self._wrong(item.position, text + "put it first, or give it a default: old jobs end before it")
            if field.has_default:
                first_default = first_default or field.name
            found.append(field)
        return found

    def _field(self, node: Node, names: dict[str, Position]) -> Field | None:
        if not isinstance(node, MappingNode):
            self._wrong(node.position, "a field is a mapping; write  - {name: to, type: string}")
            return None
        known: dict[str, Callable[[Node], Any]] = {
            "name": lambda value: self._name(value, "field", names),
            "type": self._type,
            "description": self._text,
            "optional": self._truth,
            "default": _unread,
        }
        values = self._entries(node, known, "a field", needed=("name", "type"))
        name, kind = values.get("name"), values.get("type")
        optional = bool(values.get("optional"))
        given = node.items.get("default")
        default = UNSET if given is None or kind is None else self._default(given[1], kind, optional)
        if given is not None and default is not UNSET and len(literal(default)) > MOST_DEFAULT:
            text = f"the default is longer than {MOST_DEFAULT} letters of code; make the field optional instead"
            self._wrong(given[1].position, text)
        if name is None or kind is None:
            return None
        return Field(name, kind, values.get("description") or "", optional, default)

    def _type(self, node: Node) -> FieldType | None:
        found = FIELD_TYPES.get(node.text) if isinstance(node, Scalar) else None
        if found is None:
            # `[]byte` without quotes is an empty list in YAML
            if isinstance(node, ListNode):
                text = 'a list is no type; write it in quotes: "[]byte", "[]int", "[]int64" or "[]string"'
            else:
                word = node.text if isinstance(node, Scalar) else ""
                text = f"there is no type {described(node)}; {suggest(word, tuple(FIELD_TYPES))}"
            self._wrong(node.position, text)
        return found

    def _default(self, node: Node, kind: FieldType, optional: bool) -> Any:
        if isinstance(node, Scalar) and node.value is None and optional:
            return None
        if kind.word.startswith("[]") and kind.word != "[]byte":
            one = FIELD_TYPES[kind.word[2:]]
            if not isinstance(node, ListNode) or not all(_fits(item, one) for item in node.items):
                self._wrong(node.position, f"the default must be a list of {one.word}, not {described(node)}")
                return UNSET
            return [item.value for item in node.items]
        if not _fits(node, kind):
            self._wrong(node.position, f"the default must be {_ARTICLE[kind.word]}, not {described(node)}")
            return UNSET
        assert isinstance(node, Scalar)
        if kind.word == "[]byte":
            return node.text.encode()
        return float(node.value) if kind.word == "float" else node.value  # type: ignore[arg-type]

    # -- parts

    def _entries(
        self, node: MappingNode, known: dict[str, Callable[[Node], Any]], what: str, needed: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The value of each known key; unknown and missing keys are problems."""
        for name, (position, _) in node.items.items():
            if name not in known:
                knob = QUEUE_KNOBS.get(name)  # the name of a setting, where a handler's option has another
                hint = f"write {knob.option!r}" if knob and knob.option in known else suggest(name, tuple(known))
                self._wrong(position, f"{what} has no {shown(name)}; {hint}")
        for name in needed:
            if name not in node.items:
                self._wrong(node.position, f"{what} needs {name!r}; {_ADVICE[name]}")
        return {name: reader(node.items[name][1]) for name, reader in known.items() if name in node.items}

    def _list(self, node: Node, what: str, one: str, most: int) -> list[Node]:
        if not isinstance(node, ListNode):
            self._wrong(node.position, f"{what} must be a list; begin each {one} with a dash")
            return []
        if not node.items:
            self._wrong(node.position, f"{what} is empty; there must be at least one {one}")
        if len(node.items) > most:
            self._wrong(node.position, f"{what} has {len(node.items):,} entries; at most {most:,} are allowed")
        return node.items[:most]

    def _name(self, node: Node, what: str, names: dict[str, Position]) -> str | None:
        word = node.value if isinstance(node, Scalar) else None
        if not isinstance(word, str) or len(word) > MOST_NAME or not NAME.fullmatch(word) or not word.isascii():
            text = f"{described(node)} is no name of a {what}; {_NAMES}"
            self._wrong(
                node.position, text + (f"; in quotes if {described(node)} is meant" if _is_literal(node) else "")
            )
            return None
        if keyword.iskeyword(word) or keyword.issoftkeyword(word):
            self._wrong(node.position, f"{word!r} is a word of Python and cannot be a name; write {word + '_name'!r}")
            return None
        if word in _HIDING:
            self._wrong(node.position, f"{word!r} is a name that the generated code needs; write {word + '_value'!r}")
            return None
        if what == "field" and word in RESERVED:
            self._wrong(node.position, f"{word!r} is what every job has already; write another name")
            return None
        if what == "queue" and word in _TAKEN:
            self._wrong(node.position, f"{word!r} is a module of the generated package; write {word + '_jobs'!r}")
            return None
        # `a_1` and `a1` would be one class.
        key = word if what == "field" else word.replace("_", "")
        return word if self._once(names, key, node.position, f"the {what} {word!r}") else None

    def _once(self, seen: dict[Any, Position], value: Any, position: Position, what: str) -> bool:
        if value in seen:
            self._wrong(position, f"{what} is here a second time, first in line {seen[value].line}; write another")
            return False
        seen[value] = position
        return True

    def _text(self, node: Node) -> str:
        if not isinstance(node, Scalar) or not isinstance(node.value, str) or len(node.text) > MOST_TEXT:
            self._wrong(node.position, f"a description must be a text of at most {MOST_TEXT:,} characters")
            return ""
        return node.text

    def _truth(self, node: Node) -> bool:
        if not isinstance(node, Scalar) or not isinstance(node.value, bool):
            self._wrong(node.position, f"optional must be true or false, not {described(node)}")
            return False
        return node.value

    def _number(self, node: Node) -> int | None:
        value = node.value if isinstance(node, Scalar) else None
        return value if type(value) is int else None


def _fits(node: Node, kind: FieldType) -> bool:
    if not isinstance(node, Scalar):
        return False
    value = node.value
    match kind.word:
        case "int" | "int64":
            return type(value) is int and _INT64[0] <= value <= _INT64[1]
        case "float":
            return type(value) in (int, float) and abs(value) < 1e300  # type: ignore[arg-type]
        case "bool":
            return type(value) is bool
        case _:
            return type(value) is str


def _is_literal(node: Node) -> bool:
    return isinstance(node, Scalar) and not isinstance(node.value, str) and bool(NAME.fullmatch(node.text))


def _unread(node: Node) -> None:
    """Read later, when more is known."""


_NAMES = f"write lower-case ASCII words joined by _, at most {MOST_NAME} letters, such as new_orders"
_HIDING = ("app", "bool", "bytes", "cls", "dict", "field", "float", "int", "l", "list", "object", "self", "str", "type")
_TAKEN = ("queues", "handlers", "types")
_ADVICE = {
    "id": "write a number that no other queue has, such as  id: 1",
    "name": "write  name: emails",
    "fields": "write  fields:  and a list such as  - {name: to, type: string}",
    "type": f"write one of {', '.join(FIELD_TYPES)}",
}
_ARTICLE = {
    "int": "a whole number of 64 bits",
    "int64": "a whole number of 64 bits",
    "string": "a text (in quotes, if it looks like a number or a truth value)",
    "bool": "true or false",
    "[]byte": "a text, whose UTF-8 is meant",
    "float": "a number",
}
