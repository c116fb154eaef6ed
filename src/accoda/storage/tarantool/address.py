"""Where the server is, and the user to log in as."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from urllib.parse import SplitResult, unquote

from msgspec import Struct

from accoda.errors import InvalidInput

DEFAULT_PORT = 3301
GUEST = "guest"
GREETING_SIZE = 128  # bytes with which the server begins a connection


class Address(Struct, frozen=True):
    """Shown without the password."""

    host: str
    port: int
    user: str
    password: str

    def __str__(self) -> str:
        return f"tarantool://{self.host}:{self.port}"

    def proof_for(self, greeting: bytes) -> bytes:
        """What proves to a server with this greeting that we know the password (chap-sha1), without sending it."""
        salt = b64decode(greeting[64:108])[:20]
        hashed = hashlib.sha1(self.password.encode()).digest()
        proof = hashlib.sha1(salt + hashlib.sha1(hashed).digest()).digest()
        return bytes(a ^ b for a, b in zip(hashed, proof, strict=True))


def address_of(parts: SplitResult) -> Address:
    """tarantool://user:password@host:port; without a user it is the server's `guest`."""
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise InvalidInput("url", f"the port of {parts.hostname!r} must be a number up to 65535") from error
    if not parts.hostname or parts.path.strip("/"):
        raise InvalidInput("url", "must look like tarantool://user:password@host:3301")
    return Address(parts.hostname, port, unquote(parts.username or GUEST), unquote(parts.password or ""))
