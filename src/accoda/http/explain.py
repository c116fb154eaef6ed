"""What is wrong with a value, in words: from msgspec's errors to a field's name and what it may be."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from accoda.http.problems import ProblemError

_AT = re.compile(r"^(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+|\.\.\.)\]")
_FLOAT = re.compile(r"Expected `(int|int \| null)`, got `float`")
MOST_FLOATS = 100


def explain(error: msgspec.ValidationError, type: Any) -> ProblemError:
    """The problem that names the field, as it was sent, and what is allowed there.

    >>> from msgspec import Struct
    >>> class Job(Struct, forbid_unknown_fields=True):
    ...     priority: int = 0
    >>> try:
    ...     msgspec.json.decode(b'{"prioritty": 1}', type=Job)
    ... except msgspec.ValidationError as error:
    ...     print(explain(error, Job))
    prioritty: there is no such field; did you mean priority?
    """
    found = _AT.match(str(error))
    what, path = (found["what"], found["path"] or "") if found else (str(error), "")
    info = _at(inspect.type_info(type), path)
    if unknown := _UNKNOWN.match(what):
        return _unknown(path, unknown[1], info)
    if missing := _MISSING.match(what):
        field = _join(path, missing[1])
        return ProblemError("invalid", f"{field}: is missing", field=field)
    field = path.removeprefix(".") or "body"
    wrong = f"a name in it: {_wrong(what, None)}" if found and found["key"] else _wrong(what, info)
    return ProblemError("invalid", f"{field}: {wrong}", field=field)


def settled(raw: Any, type: Any) -> Any:
    """Convert builtins to a type, with numbers such as 5.0 taken for integers where one is wanted."""
    for _ in range(MOST_FLOATS):
        try:
            return msgspec.convert(raw, type)
        except msgspec.ValidationError as error:
            found = _AT.match(str(error))
            if found is None or not is_float_for_integer(error):
                raise explain(error, type) from error
            if not _make_whole(raw, found["path"] or ""):
                raise explain(error, type) from error
    raise ProblemError("invalid", f"more than {MOST_FLOATS} integers are written with a point; write them without")


def is_float_for_integer(error: msgspec.ValidationError) -> bool:
    """Whether the trouble may be no more than an integer that is written as 5.0."""
    return _FLOAT.match(str(error)) is not None


def located(text: str) -> str:
    """A text from outside, short and quoted."""
    shown = repr(text)
    return shown if len(shown) <= 80 else shown[:77] + "...'"


def _make_whole(raw: Any, path: str) -> bool:
    steps = [name or index for name, index in _STEP.findall(path)]
    if not steps or "..." in steps[:-1]:
        return False
    for step in steps[:-1]:
        raw = raw[int(step) if isinstance(raw, list) else step]
    # Of the values of a map, msgspec does not say which one it is.
    places = list(raw) if steps[-1] == "..." else [int(steps[-1]) if isinstance(raw, list) else steps[-1]]
    whole = [place for place in places if isinstance(raw[place], float) and raw[place].is_integer()]
    for place in whole:
        raw[place] = int(raw[place])
    return bool(whole)


def _unknown(path: str, name: str, info: inspect.Type | None) -> ProblemError:
    field = _join(path, name)
    known = [each.encode_name for each in info.fields] if isinstance(info, inspect.StructType) else []
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    advice = f"there is {', '.join(known)}" if known else "nothing is read here"
    if near:
        advice = f"did you mean {near[0]}?"
    return ProblemError("invalid", f"{field}: there is no such field; {advice}", field=field)


def _join(path: str, name: str) -> str:
    return f"{path.removeprefix('.')}.{name}" if path else name


def _wrong(what: str, info: inspect.Type | None) -> str:
    text = what[:1].lower() + what[1:].replace("`", "")
    allowed = _allowed(info)
    if what.startswith(("Invalid enum value", "Expected")) and allowed:
        if what.startswith("Invalid"):
            return f"must be {allowed}, not {what.removeprefix('Invalid enum value ')}"
        return f"must be {allowed}{', not ' + text.partition(', got ')[2] if ', got ' in text else ''}"
    return text


def _allowed(info: inspect.Type | None) -> str:
    """What may stand there, where that can be said better than by the name of a type."""
    match info:
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, info.values))}"
        case inspect.EnumType():
            return f"one of {', '.join(str(each.value) for each in info.cls)}"
        case inspect.IntType() | inspect.FloatType():
            return _number(info)
        case inspect.UnionType():
            parts = [_allowed(each) for each in info.types if not isinstance(each, inspect.NoneType)]
            return " or ".join(parts) if all(parts) else ""
    return ""


def _number(info: inspect.IntType | inspect.FloatType) -> str:
    name = "an integer" if isinstance(info, inspect.IntType) else "a number"
    low, high = info.ge if info.ge is not None else info.gt, info.le if info.le is not None else info.lt
    if low is not None and high is not None:
        return f"{name} from {low} to {high}"
    if low is not None:
        return f"{name} >= {low}" if info.ge is not None else f"{name} > {low}"
    return name if high is None else f"{name} <= {high}"


def _at(info: inspect.Type | None, path: str) -> inspect.Type | None:
    """The type at a path such as `.jobs[3].priority`; None where it cannot be told."""
    for name, _ in _STEP.findall(path):
        info = _plain(info)
        if name and isinstance(info, inspect.StructType):
            info = next((field.type for field in info.fields if field.encode_name == name), None)
        elif not name and isinstance(info, (inspect.ListType, inspect.VarTupleType, inspect.SetType)):
            info = info.item_type
        else:
            return None
    return _plain(info)


def _plain(info: inspect.Type | None) -> inspect.Type | None:
    """A type without what stands around it: its Meta, and None or UNSET beside it."""
    if isinstance(info, inspect.Metadata):
        return _plain(info.type)
    if isinstance(info, inspect.UnionType):
        rest = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        return _plain(rest[0]) if len(rest) == 1 else info
    return info
