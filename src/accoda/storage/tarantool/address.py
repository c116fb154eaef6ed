"""Where the server is and who we are there."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote

from msgspec import Struct

from accoda.errors import InvalidInput

DEFAULT_PORT = 3301
GUEST = "guest"


class Address(Struct, frozen=True):
    """Shown without the password."""

    host: str
    port: int
    user: str
    password: str

    def __str__(self) -> str:
        return f"tarantool://{self.host}:{self.port}"


def address_of(parts: SplitResult) -> Address:
    """tarantool://user:password@host:port; without a user it is the server's `guest`."""
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise InvalidInput("url", f"the port of {parts.hostname!r} must be a number up to 65535") from error
    if not parts.hostname or parts.path.strip("/"):
        raise InvalidInput("url", "must look like tarantool://user:password@host:3301")
    return Address(parts.hostname, port, unquote(parts.username or GUEST), unquote(parts.password or ""))
