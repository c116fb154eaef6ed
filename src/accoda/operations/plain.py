"""Stored bytes as values that JSON can carry, for people to look at. Nothing that is stored makes it fail.

What JSON has no form for is marked: `{"$bytes": "aGk="}`, `{"$float": "nan"}`, `{"$ext": 5, "$bytes": …}`,
`{"$map": [[key, value], …]}` where keys as text would collide, `{"$unreadable": why, "$bytes": …}`.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.msgpack import Ext

from accoda.envelope import named
from accoda.payload import Codec

SHOWN_BYTES = 4096
"""How many bytes of an unreadable payload are shown."""

_anything: Codec[Any] = Codec(Any)


def decoded(data: bytes, codec: Codec[Any] | None = None) -> Any:
    """The values in a payload or result; by name where the codec's record has names and the bytes have none.

    Raises `UnreadablePayload`.
    """
    if codec is not None and has_hidden_names(codec):
        return named(codec.decode(data))
    return _anything.decode(data)


def has_hidden_names(codec: Codec[Any]) -> bool:
    """Whether its record is stored as an array, so that only the handler knows the names of the fields."""
    config = getattr(codec.type, "__struct_config__", None)
    return type(codec) is not Codec or (config is not None and config.array_like)


def unreadable(data: bytes, why: object) -> dict[str, Any]:
    """What is shown of bytes that cannot be read."""
    text = b64encode(data[:SHOWN_BYTES]).decode()
    return {"$unreadable": str(why), "$bytes": text} | ({"$size": len(data)} if len(data) > SHOWN_BYTES else {})


def plain(value: Any) -> Any:
    """Any decoded value as one that JSON can carry.

    >>> plain({"a": b"hi", 7: [float("inf")]})
    {'a': {'$bytes': 'aGk='}, '7': [{'$float': 'inf'}]}
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if isfinite(value) else {"$float": str(value)}
    if kind is list or kind is tuple:
        return [plain(each) for each in value]
    if kind is dict:
        return _plain_map(value)
    return _rare(value)


def _plain_map(value: dict[Any, Any]) -> dict[str, Any]:
    if all(type(key) is str for key in value):
        return {key: plain(each) for key, each in value.items()}
    keys = [_as_key(key) for key in value]
    if None not in keys and len(set(keys)) == len(keys):
        return {key: plain(each) for key, each in zip(keys, value.values(), strict=True)}  # type: ignore[misc]
    return {"$map": [[plain(key), plain(each)] for key, each in value.items()]}


def _as_key(key: Any) -> str | None:
    """A key as text; None: it has no short form."""
    if type(key) is str:
        return key
    return msgspec.json.encode(key).decode() if key is None or type(key) in (int, bool) else None


def _rare(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, Ext):
        return {"$ext": value.code, "$bytes": b64encode(value.data).decode()}
    if isinstance(value, Struct):
        return plain(named(value))
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, (set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    return {"$unreadable": f"a {type(value).__name__}"}
