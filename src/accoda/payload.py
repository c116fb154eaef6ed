"""Payloads on the wire: msgpack, with the handler's type for the way back.

A payload is a msgspec struct, a dataclass, a TypedDict or plain builtins. What does not fit the type is found when it
is decoded, with the name of the field.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from accoda.errors import InvalidInput

T = TypeVar("T")


class Codec(Generic[T]):
    """Turns payloads of one type into bytes and back.

    >>> Codec(dict[str, int]).decode(Codec(dict[str, int]).encode({"user": 7}))
    {'user': 7}
    """

    __slots__ = ("_decoder", "type")

    def __init__(self, type: Any = Any) -> None:
        self.type = type
        try:
            self._decoder = msgspec.msgpack.Decoder(type)
        except TypeError as error:
            raise InvalidInput(
                "payload", f"{name_of(type)} cannot be stored: {error}; use a msgspec.Struct, dataclass or TypedDict"
            ) from error

    def encode(self, payload: object) -> bytes:
        """The bytes of a payload; refuses one that the handler could not read."""
        try:
            if self.type is not Any and type(payload) is not self.type:
                # Another class may still fit (a dict for a struct): what counts is what the handler will read.
                msgspec.convert(msgspec.to_builtins(payload, builtin_types=_WIRE), self.type)
            return encode(payload)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise InvalidInput("payload", f"does not fit {name_of(self.type)}: {error}") from error

    def decode(self, data: bytes) -> T:
        """The payload, or `UnreadablePayload` with the name of the field that is wrong."""
        try:
            return self._decoder.decode(data)  # type: ignore[no-any-return]
        except Exception as error:  # a hostile record may raise what it likes, and must stop nobody
            raise UnreadablePayload(f"the payload is no {name_of(self.type)}: {error}") from error


class UnreadablePayload(Exception):
    """Bytes that are not what the handler expects."""


def encode(payload: object) -> bytes:
    """Any payload as msgpack."""
    try:
        return _encoder.encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput("payload", f"cannot be stored: {error}; use structs, dataclasses or plain values") from error


def decode(data: bytes) -> Any:
    """Msgpack as plain values."""
    return _plain.decode(data)


def name_of(type: Any) -> str:
    """A type as its user wrote it.

    >>> name_of(int), name_of(dict[str, int])
    ('int', 'dict[str, int]')
    """
    return type.__name__ if isinstance(type, _Class) and not hasattr(type, "__args__") else str(type)


_Class = type
_encoder = msgspec.msgpack.Encoder()
_plain: Any = msgspec.msgpack.Decoder()
_WIRE = (bytes, bytearray, memoryview)
