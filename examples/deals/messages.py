"""The part of HTTP/1.1 that this example needs: heads, lengths, persistent connections."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

MOST_HEAD = 16_384
"""Bytes of a head; more is refused."""
_END = b"\r\n\r\n"
_TEXTS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error",
}  # fmt: skip


class BadMessage(Exception):
    """What came is no HTTP message that is understood here; `status` is what a server answers to it."""

    def __init__(self, problem: str, status: int = 400) -> None:
        super().__init__(problem)
        self.status = status


class Request(Struct, frozen=True):
    """What a client asked for."""

    method: str
    path: str
    query: dict[str, str]
    stays: bool
    """Whether the connection stays open after the answer."""


class Response(Struct, frozen=True):
    """What a server answered; the names of `headers` are in lower case."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}

    @property
    def stays(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request on a connection, its body read and dropped; None: the client has gone."""
    head = await _head(reader)
    if head is None:
        return None
    first, headers = head
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadMessage(f"{first[:80]!r} is no request line")
    await _body(reader, headers)
    target = urlsplit(words[1])
    stays = headers.get("connection", "").lower() != "close" and words[2] != "HTTP/1.0"
    return Request(words[0], target.path, dict(parse_qsl(target.query)), stays)


async def read_response(reader: asyncio.StreamReader) -> Response | None:
    """The answer on a connection; None: the server has closed it instead."""
    head = await _head(reader)
    if head is None:
        return None
    first, headers = head
    words = first.split(" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise BadMessage(f"{first[:80]!r} is no status line")
    return Response(int(words[1]), await _body(reader, headers), headers)


def write_response(response: Response) -> bytes:
    """As bytes, with its length."""
    headers = {"content-type": "application/json", **response.headers, "content-length": str(len(response.body))}
    lines = [f"HTTP/1.1 {response.status} {_TEXTS.get(response.status, '')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + _END + response.body


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    """The first line and the headers; None where the connection ended between two messages."""
    try:
        data = await reader.readuntil(_END)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BadMessage("the connection ended in the middle of a head") from None
        return None
    except asyncio.LimitOverrunError:
        raise BadMessage(f"the head is longer than {MOST_HEAD} bytes", 431) from None
    first, *lines = data[: -len(_END)].decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    length = headers.get("content-length", "0")
    if not length.isdigit() or "transfer-encoding" in headers:
        raise BadMessage("only bodies with a content-length are understood")
    try:
        return await reader.readexactly(int(length))
    except asyncio.IncompleteReadError:
        raise BadMessage("the connection ended in the middle of a body") from None
