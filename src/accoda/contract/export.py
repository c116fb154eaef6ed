"""Code first: the contract of handlers whose payloads are structs, dataclasses or TypedDicts."""

from __future__ import annotations

import json
import types
import typing
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.inspect import DataclassType, StructType, TypedDictType, type_info

from accoda.contract.loader import NAME, RESERVED, parse
from accoda.contract.model import FIELD_TYPES, Contract, Field, Queue
from accoda.contract.queue_settings import KEYS, QueueSettings
from accoda.contract.wire import RecordCodec
from accoda.errors import ContractError
from accoda.payload import name_of
from accoda.retry import Exponential, Fixed
from accoda.runtime.handler import Handler, QueueHandlers

_WORDS = {kind.python.replace("Int64", "int"): word for word, kind in FIELD_TYPES.items()}


def export(queues_of_app: typing.Mapping[str, QueueHandlers]) -> tuple[str, list[str]]:
    """The contract as YAML, and notes about it. `ContractError`: a handler cannot be put into a contract."""
    problems: list[str] = []
    notes: list[str] = []
    handlers = [handler for each in queues_of_app.values() for handler in each.by_type.values()]
    used = {handler.options.number for handler in handlers}
    free = (number for number in range(1, 1_000_000) if number not in used)
    queues = []
    for handler in handlers:
        first = next(iter(queues_of_app[handler.queue].by_type.values()))
        # The queue's number is that of its first kind of job; each of the others has one of its own.
        number = (handler.options.number if handler is first else None) or next(free)
        fields = _fields(handler, problems, notes)
        if fields:
            about, settings = handler.__doc__ or "", _settings(handler, notes)
            if handler.type is None:
                queues.append(Queue(number, handler.queue, tuple(fields), about, settings))
            else:
                name = handler.type if NAME.fullmatch(handler.type) else handler.__name__
                queues.append(Queue(number, name, tuple(fields), about, settings, handler.queue, handler.type))
    if not handlers:
        problems.append("the app has no handlers; a contract needs at least one queue")
    if problems:
        raise ContractError(problems)
    text = write(Contract(tuple(queues)))
    parse(text, "the exported contract")  # refuses names that a contract does not allow
    return text, notes


def _fields(handler: Handler[Any, Any, Any], problems: list[str], notes: list[str]) -> list[Field]:
    queue, kind = handler.queue, handler.codec.type
    info = type_info(kind) if kind is not Any else None
    if not isinstance(info, StructType | DataclassType | TypedDictType):
        problems.append(f"{queue}: its payload is {name_of(kind)}; declare a msgspec.Struct, dataclass or TypedDict")
        return []
    generated = isinstance(handler.codec, RecordCodec)
    in_order = generated or (isinstance(info, StructType) and info.array_like)
    if not in_order:
        notes.append(
            f"{queue}: its jobs are stored as maps now, and generated code reads arrays: let the queue run empty "
            "first, or declare the struct with array_like=True"
        )
    hints = typing.get_type_hints(kind)
    # In the order of the declaration: a TypedDict's fields come sorted by name.
    declared = sorted(info.fields, key=lambda field: list(hints).index(field.name))
    found = []
    for field in declared:
        if generated and field.name in RESERVED:
            continue
        each, problem = _field_of(field, hints[field.name])
        if each is None:
            problems.append(f"{queue}: field {field.name!r}{problem}")
            continue
        if each.optional and not field.required and _default_of(field) is UNSET:
            notes.append(f"{queue}: field {field.name!r} may be left out now; in a record it is None then")
        found.append(each)
    # In a map they have no order: then those without a default come first, as a contract requires.
    return found if in_order else sorted(found, key=lambda field: field.has_default)


def _field_of(field: msgspec.inspect.Field, hint: Any) -> tuple[Field | None, str]:
    """The field of a contract, or why there is none for it."""
    hint, optional = _without_none(hint)
    word = _WORDS.get(name_of(hint))
    if word is None:
        return None, f" is {name_of(hint)}; {_ALLOWED}"
    default = UNSET if field.required else _default_of(field)
    if isinstance(default, bytes) and not _is_text(default):
        return None, ": a default of bytes must be UTF-8; make it optional instead"
    may_lack = not field.required and default is UNSET  # a key of a TypedDict
    return Field(field.name, FIELD_TYPES[word], "", optional or may_lack, default), ""


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(rest) == 1 and len(typing.get_args(hint)) == 2:
            return rest[0], True
    return hint, False


def _default_of(field: msgspec.inspect.Field) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default if field.default is not msgspec.NODEFAULT else UNSET


def _settings(handler: Handler[Any, Any, Any], notes: list[str]) -> QueueSettings:
    """What the handler says of its jobs, as far as a contract has a key for it; the rest is noted."""
    options = handler.options
    given = {name: getattr(options, name) for name in KEYS if name in options.said}
    left = sorted(options.said - {*KEYS, "number", "type", "settle"})
    if not isinstance(given.get("retry"), Fixed | Exponential | None):
        given["retry"], left = None, ["retry", *left]
    if not isinstance(given.get("cost"), int | None):
        given["cost"], left = None, ["cost", *left]
    if left:
        notes.append(f"{handler.queue}: a contract cannot say its {', '.join(left)}: keep its handler in code")
    return QueueSettings(**given)


def write(contract: Contract) -> str:
    """A contract as YAML; parsing it gives the same contract."""
    about = [f"description: {_scalar(contract.description)}"] if contract.description else []
    lines = [*about, "queues:"]
    for queue in contract.queues:
        lines += [f"  - id: {queue.id}", f"    name: {_scalar(queue.name)}"]
        lines += [f"    {name}: {_scalar(value)}" for name in ("queue", "type") if (value := getattr(queue, name))]
        if queue.description:
            lines.append(f"    description: {_scalar(' '.join(queue.description.split()))}")
        lines += [f"    {name}: {_scalar(value)}" for name, value in queue.settings.written().items()]
        lines += ["    fields:", *(f"      - {_field(field)}" for field in queue.fields)]
    return "\n".join(lines) + "\n"


def _field(field: Field) -> str:
    parts = [f"name: {_scalar(field.name)}", f"type: {_scalar(field.type.word)}"]
    if field.optional:
        parts.append("optional: true")
    if field.default is not UNSET and field.default is not None:
        value = field.default.decode() if isinstance(field.default, bytes) else field.default
        parts.append(f"default: {_scalar(value)}")
    if field.description:
        parts.append(f"description: {_scalar(field.description)}")
    return "{" + ", ".join(parts) + "}"


def _scalar(value: Any) -> str:
    """JSON is YAML except for invisible characters; a plain word needs no quotes."""
    if isinstance(value, str) and value.isidentifier() and value.isascii() and value not in _MEANING:
        return value
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in text)


_ALLOWED = "a contract knows int, str, bool, bytes, float, list[int] and list[str], each also with | None"
_MEANING = frozenset(
    ("null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE", "y", "n", "yes", "no", "on", "off")
)
