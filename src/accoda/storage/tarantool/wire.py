"""IPROTO, the server's binary protocol: requests to bytes, bytes to answers. No I/O here.

A packet is its length, a header (a map with the kind or error code, and the number that pairs a request with its
answer) and a body (a map). Everything is msgpack.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Sequence
from struct import Struct
from typing import Any

from msgspec import Raw
from msgspec.msgpack import Decoder, Encoder, decode

from accoda.storage.tarantool.errors import ServerError

GREETING_SIZE = 128
PREFIX_SIZE = 5  # the length, always written as a 32-bit number

_CALL, _AUTH, _EVAL, _PING = 0x0A, 0x07, 0x08, 0x40
_KEY_TUPLE, _KEY_FUNCTION, _KEY_USER, _KEY_EXPRESSION = 0x21, 0x22, 0x23, 0x27
_KEY_CODE, _KEY_SYNC = 0x00, 0x01
_KEY_DATA, _KEY_ERROR = 0x30, 0x31
_IS_ERROR = 0x8000
_PLAIN_BODY = bytes((0x81, _KEY_DATA))  # a map with one entry, the data

_head = Struct(">BIBBBBBI")  # the length, then the header: a map of two, the kind, and the number
_length = Struct(">xI")
_UINT_SIZES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_encode = Encoder().encode
_fields = Decoder(dict[int, Raw])
_names: dict[str, bytes] = {}


def call(sync: int, function: str, args: Sequence[Any]) -> bytes:
    """Run a stored function."""
    name = _names.get(function)
    if name is None:
        name = _names[function] = bytes((0x82, _KEY_FUNCTION)) + _encode(function) + bytes((_KEY_TUPLE,))
    return _packet(_CALL, sync, name + _encode(args))


def eval_(sync: int, script: str, args: Sequence[Any]) -> bytes:
    """Run a script that is sent along."""
    return _packet(_EVAL, sync, _encode({_KEY_EXPRESSION: script, _KEY_TUPLE: args}))


def ping(sync: int) -> bytes:
    """Ask for a sign of life."""
    return _packet(_PING, sync, _encode({}))


def auth(sync: int, user: str, password: str, greeting: bytes) -> bytes:
    """Prove that we know the password (chap-sha1) without sending it."""
    salt = b64decode(greeting[64:108])[:20]
    hashed = hashlib.sha1(password.encode()).digest()
    proof = hashlib.sha1(salt + hashlib.sha1(hashed).digest()).digest()
    scramble = bytes(a ^ b for a, b in zip(hashed, proof, strict=True))
    return _packet(_AUTH, sync, _encode({_KEY_USER: user, _KEY_TUPLE: ("chap-sha1", scramble)}))


def _packet(kind: int, sync: int, body: bytes) -> bytes:
    return _head.pack(0xCE, _head.size - PREFIX_SIZE + len(body), 0x82, _KEY_CODE, kind, _KEY_SYNC, 0xCE, sync) + body


def length_at(data: bytes | bytearray, position: int) -> int:
    """How long the packet is whose prefix begins there."""
    length: int = _length.unpack_from(data, position)[0]
    return length


def header_of(packet: memoryview) -> tuple[int, int, int]:
    """The code, the number, and where the body begins."""
    code = sync = 0
    position = 1
    for _ in range(packet[0] & 0x0F):
        key = packet[position]
        value, position = _uint(packet, position + 1)
        if key == _KEY_CODE:
            code = value
        elif key == _KEY_SYNC:
            sync = value
    return code, sync, position


def body_of(code: int, body: memoryview, decoder: Decoder[Any]) -> Any:
    """What the function gave back. Raises `ServerError` for an error answer."""
    if code & _IS_ERROR:
        message = decode(_fields.decode(body)[_KEY_ERROR], type=str)
        raise ServerError(code & ~_IS_ERROR, message)
    if body[:2] == _PLAIN_BODY:
        return decoder.decode(body[2:])[0]
    data = _fields.decode(body).get(_KEY_DATA) if body else None
    return decoder.decode(data)[0] if data is not None else None


def _uint(packet: memoryview, position: int) -> tuple[int, int]:
    first = packet[position]
    if first < 0x80:
        return first, position + 1
    end = position + 1 + _UINT_SIZES[first]
    return int.from_bytes(packet[position + 1 : end]), end
