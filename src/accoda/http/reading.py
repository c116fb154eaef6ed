"""From what came over the wire to the structs of an operation; what does not fit is named."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from accoda.http.explain import explain, is_float_for_integer, located, settled
from accoda.http.problems import ProblemError

MAX_PARAMETERS = 50


class BodyReader:
    """Decodes bodies of one type. Made once for each operation."""

    def __init__(self, type: Any, *, optional: bool) -> None:
        self.type = type
        self.optional = optional
        self._decode = msgspec.json.Decoder(type).decode

    def __call__(self, body: bytes) -> Any:
        if not body and self.optional:
            body = b"{}"
        try:
            return self._decode(body)
        except msgspec.ValidationError as error:
            return self._again(body, error)
        except UnicodeDecodeError as error:
            raise ProblemError("malformed", f"the body is not UTF-8: {error.reason}") from error
        except RecursionError as error:
            raise ProblemError("malformed", "the body is nested too deep") from error
        except ValueError as error:
            raise ProblemError("malformed", f"the body is not JSON: {_syntax(str(error), body)}") from error

    def _again(self, body: bytes, error: msgspec.ValidationError) -> Any:
        """5.0 is an integer for JSON Schema, and so for us: the decoder, which is strict, gets it as 5."""
        if not is_float_for_integer(error):
            raise explain(error, self.type) from error
        try:
            return settled(msgspec.json.decode(body), self.type)
        except RecursionError as deep:
            raise ProblemError("malformed", "the body is nested too deep") from deep


class TextReader:
    """Makes a struct of the texts of a query or a path. Made once for each operation."""

    def __init__(self, type: type[msgspec.Struct]) -> None:
        self.type = type
        fields = msgspec.structs.fields(type)
        self.names = {field.encode_name for field in fields}
        self._floats = [field.encode_name for field in fields if _is(field.type, float)]
        self._flags = [field.encode_name for field in fields if _is(field.type, bool)]

    def __call__(self, texts: Mapping[str, Any]) -> Any:
        for name in self._flags:
            if texts.get(name, "true") not in ("true", "false"):
                raise ProblemError("invalid", f"{name}: must be true or false, not {texts[name]!r}", field=name)
        try:
            for name in self._floats:
                if name in texts and not math.isfinite(float(texts[name])):
                    raise ProblemError("invalid", f"{name}: must be a finite number, not {texts[name]}", field=name)
        except ValueError:
            pass  # no number at all: what follows says so
        try:
            return msgspec.convert(texts, self.type, strict=False)
        except msgspec.ValidationError as error:
            raise explain(error, self.type) from error


def query_texts(raw: bytes) -> dict[str, str]:
    """The parameters of a query string; refuses what is given twice, and what is no text."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except UnicodeDecodeError as error:
        raise ProblemError("malformed", "the query is not UTF-8 with percent signs") from error
    except ValueError as error:
        raise ProblemError("malformed", f"the query has more than {MAX_PARAMETERS} parameters") from error
    texts = dict(pairs)
    if len(texts) != len(pairs):
        twice = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise ProblemError("invalid", f"{twice}: is given twice; give it once", field=twice)
    return texts


async def read_body(scope: MutableMapping[str, Any], receive: Any, limit: int) -> bytes:
    """The whole body, or a problem as soon as it is over the limit."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > limit:
            raise _over(limit)
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        if size > limit:
            raise _over(limit)
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    if size > limit:
        raise _over(limit)
    return b"".join(parts)


def check_json(scope: MutableMapping[str, Any]) -> None:
    """Refuse a body that says it is something else than JSON in UTF-8."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            if value == b"application/json":
                return
            kind, _, parameters = value.decode("latin-1").partition(";")
            charset = parameters.strip().lower().replace('"', "")
            if kind.strip().lower() == "application/json" and charset in ("", "charset=utf-8"):
                return
            raise ProblemError(
                "unsupported-media-type", f"the body is {located(value.decode('latin-1'))}; send application/json"
            )
    raise ProblemError("unsupported-media-type", "the body has no Content-Type; send application/json")


def _over(limit: int) -> ProblemError:
    return ProblemError("too-large", f"the body has more than {limit:,} bytes, which is the most that is read")


def _syntax(text: str, body: bytes) -> str:
    if text == "Input data was truncated":
        return "it is empty" if not body.strip() else f"it ends too soon, after byte {len(body)}"
    return text.removeprefix("JSON is malformed: ")


def _is(annotated: Any, kind: type) -> bool:
    """Whether a field is of a type, with or without a Meta or another type beside it."""
    info = msgspec.inspect.type_info(annotated)
    kinds = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    wanted = msgspec.inspect.FloatType if kind is float else msgspec.inspect.BoolType
    return any(isinstance(each, wanted) for each in kinds)
