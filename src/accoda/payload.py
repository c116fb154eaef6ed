"""Payloads on the wire: msgpack, with the handler's type for the way back.

A payload is a msgspec struct, a dataclass, a TypedDict, a pydantic model or plain builtins. What does not fit the type
is refused when it is encoded, with the name of the field, and again when it is decoded. Limits (`accoda.limits`) hold
when something is encoded; what is stored already is decoded as long as it is within the most that any limit may be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from accoda.envelope import MARK, payload_of
from accoda.errors import InvalidInput
from accoda.limits import ARRAY_KEYS, MOST, allowed, too_large
from accoda.misfit import in_words
from accoda.model import Job
from accoda.pydantic_models import from_plain, to_plain
from accoda.shape import has_many_lists, over

T = TypeVar("T")


class Codec(Generic[T]):
    """Turns payloads of one type into bytes and back.

    >>> Codec(dict[str, int]).decode(Codec(dict[str, int]).encode({"user": 7}))
    {'user': 7}
    """

    __slots__ = ("_fits_as_it_is", "decode_bare", "type")

    def __init__(self, type: Any = Any) -> None:
        self.type = type
        try:
            self.decode_bare: Callable[[bytes], T] = msgspec.msgpack.Decoder(type, dec_hook=from_plain).decode
            """The payload of bytes that are known to be short and to have no envelope. May raise anything."""
        except TypeError as error:
            raise InvalidInput(
                "payload", f"{name_of(type)} cannot be stored: {error}; use a msgspec.Struct, dataclass or TypedDict"
            ) from error
        self._fits_as_it_is = type is Any or type in _LEAVES

    def encode(self, payload: object) -> bytes:
        """The bytes of a payload; refuses one that the handler could not read."""
        data = encode(payload)
        if self._fits_as_it_is and (self.type is Any or type(payload) is self.type):
            return data
        # A class proves nothing: `Email(to=None)` is an Email. And another class may fit, such as a dict for a struct.
        # What counts is what the handler will read.
        try:
            self.decode_bare(data)
        except Exception as error:  # a user's class may raise anything
            raise InvalidInput("payload", f"does not fit {name_of(self.type)}: {in_words(error)}") from error
        return data

    def open(self, job: Job) -> T:
        """The payload of a job. Other codecs may tell more than its data does."""
        return self.decode(job.data)

    def decode(self, data: bytes) -> T:
        """The payload, or `UnreadablePayload` with the name of the field that is wrong."""
        try:
            if data and data[0] == MARK:
                data = payload_of(data)
            if len(data) > ARRAY_KEYS:
                _check_readable(data)
            return self.decode_bare(data)
        except Exception as error:  # a hostile record may raise anything
            raise UnreadablePayload(f"the payload is no {name_of(self.type)}: {in_words(error)}") from error


def codec_of(type: Any) -> Codec[Any]:
    """The codec of a payload type: its own, if it was given one, or the usual one."""
    return _codecs.get(type) or Codec(type) if isinstance(type, _Class) else Codec(type)


def use_codec(type: type[Any], codec: Codec[Any]) -> None:
    """Let payloads of this type go by a codec of their own: what generated records do."""
    _codecs[type] = codec


class UnreadablePayload(Exception):
    """Bytes that are not what the handler expects."""


def encode(payload: object) -> bytes:
    """Any payload as msgpack."""
    try:  # `_encode`, without the call: this runs for every job
        data = _encoder.encode(payload)
    except _UNFIT as error:
        raise _unstorable("payload", error) from error
    if len(data) > allowed.depth:
        _check_shape("payload", data)
    if len(data) > allowed.payload:
        too_large("payload", len(data), "payload")
    return data


def encode_result(value: object) -> bytes:
    """What a handler returned, as msgpack."""
    data = _encode("result", value)
    if len(data) > allowed.result:
        too_large("result", len(data), "result")
    return data


def decode(data: bytes) -> Any:
    """Msgpack as plain values: a payload, or a result."""
    return _plain.decode(payload_of(data))


def read_json(data: bytes, type: type[T]) -> T | None:
    """What a document of ours says; None: it is damaged, or of another version of Accoda, and cannot be read.

    Not only msgspec's own errors: text that is no UTF-8 and nesting without end have errors of Python's.
    """
    try:
        return msgspec.json.decode(data, type=type)
    except (ValueError, RecursionError):  # msgspec's and Unicode's are both ValueErrors
        return None


def name_of(type: Any) -> str:
    """A type as its user wrote it.

    >>> name_of(int), name_of(dict[str, int])
    ('int', 'dict[str, int]')
    """
    return type.__name__ if isinstance(type, _Class) and not hasattr(type, "__args__") else str(type)


def converted(payload: object, type: Any) -> Any:
    """Plain values of JSON or TOML as a payload type: what is bytes or a moment there is text in them."""
    try:
        return msgspec.convert(payload, type, dec_hook=from_plain)
    except Exception as error:  # a user's record may raise anything
        raise InvalidInput("payload", f"does not fit {name_of(type)}: {in_words(error)}") from error


def _encode(field: str, value: object) -> bytes:
    try:
        data = _encoder.encode(value)
    except _UNFIT as error:
        raise _unstorable(field, error) from error
    if len(data) > allowed.depth:
        _check_shape(field, data)
    return data


def _unstorable(field: str, error: Exception) -> InvalidInput:
    return InvalidInput(field, f"cannot be stored: {error}; use structs, dataclasses, pydantic models or plain values")


def _check_shape(field: str, data: bytes) -> None:
    """Refuse what a worker would not read, or could only read slowly."""
    match over(data, allowed.depth, allowed.items, ARRAY_KEYS):
        case "depth":
            too_large(field, allowed.depth + 1, "depth")
        case "items":
            too_large(field, allowed.items + 1, "items")
        case "keys":
            raise InvalidInput(field, f"{_MANY_KEYS}; use texts or numbers as keys")


def _check_readable(data: bytes) -> None:
    """Refuse what would take seconds. Nesting is msgspec's to refuse: it stops before the stack ends."""
    if len(data) > MOST.payload:
        raise ValueError(f"it has {len(data):,} bytes, and at most {MOST.payload:,} are read")
    if len(data) > MOST.items or has_many_lists(data, ARRAY_KEYS):
        match over(data, MOST.depth, MOST.items, ARRAY_KEYS):
            case "depth":
                raise ValueError(f"it is nested more than {MOST.depth} levels deep")
            case "items":
                raise ValueError(f"it has more than {MOST.items:,} values")
            case "keys":
                raise ValueError(_MANY_KEYS)


_Class = type
_codecs: dict[Any, Codec[Any]] = {}
_encoder = msgspec.msgpack.Encoder(enc_hook=to_plain)
_plain: Any = msgspec.msgpack.Decoder()
_LEAVES = (str, int, float, bool, bytes)  # an object of exactly this class fits
_UNFIT = (TypeError, ValueError, OverflowError, RecursionError)  # msgspec's own are ValueErrors
_MANY_KEYS = f"more than {ARRAY_KEYS:,} keys of maps in it are lists"
