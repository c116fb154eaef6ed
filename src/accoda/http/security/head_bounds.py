"""The two bounds that uvicorn lacks: on the size of a request's head, and on the time that it may take to arrive.

Without them a client could send headers for ever, which would be kept, or open connections and say nothing.

`BoundedHeads` stands between the transport and uvicorn's own protocol and hands on whole heads only. Everything else is
uvicorn's, and what is decided about a request is decided in ASGI, by the guard.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SIZE = 64 * 1024
"""Bytes of a request line and its headers."""
HEAD_COUNT = 200
"""Headers of one request."""
HEAD_TIME = 15.0
"""Seconds from the first byte (of a new connection: from its opening) to the end of the headers."""

_END = b"\r\n\r\n"
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_ABSOLUTE = re.compile(rb"^([!-~]+ )https?://([^/?# ]*)", re.IGNORECASE)
_HOST = re.compile(rb"\r\nhost:[^\r]*", re.IGNORECASE)


class BoundedHeads(asyncio.Protocol):
    """One connection. A head that is too large or too slow gets 431 or 408, and the connection is closed."""

    head_time = HEAD_TIME

    def __init__(self, **given: Any) -> None:
        self._inner = HttpToolsProtocol(**given)
        self._parser = httptools.HttpRequestParser(self)
        self._head = b""
        self._in_message = False
        """Whether the last head is complete and its body is still arriving."""
        self._had_request = False
        """Whether a whole request has come on this connection: it may still wait for its answer."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._inner.connection_made(self._transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        if not self._in_message:
            whole = self._whole_head(self._head + data)
            if whole is None:
                return
            data = whole
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._had_request:  # it must not take an answer to this one for its own
                self._transport.close()
                return
            # Otherwise uvicorn finds the same and answers with 400.
        except httptools.HttpParserUpgrade:  # of a request that came together with the one before it
            self._refuse(b"400 Bad Request", b"Send a request that offers an upgrade by itself.")
            return
        self._inner.data_received(data)

    # -- what the parser tells: where a message's body begins and ends

    def on_headers_complete(self) -> None:
        self._in_message = True

    def on_message_complete(self) -> None:
        self._in_message, self._had_request = False, True

    # -- heads

    def _whole_head(self, data: bytes) -> bytes | None:
        """What was received, if the head in it is complete; None: it waits for the rest, or was refused."""
        end = data.find(_END)
        if end > HEAD_SIZE or (end < 0 and len(data) > HEAD_SIZE) or data.count(b"\r\n", 0, end) > HEAD_COUNT:
            self._refuse(b"431 Request Header Fields Too Large", b"The headers are too many or too large.")
            return None
        if end < 0:
            self._head = data
            if self._timer is None:
                self._start_timer()
            return None
        self._stop_timer()
        self._head = b""
        return _plain(data[:end]) + data[end:]

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.head_time, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        self._refuse(b"408 Request Timeout", b"The request did not arrive in time.")

    def _refuse(self, status: bytes, text: bytes) -> None:
        """Say why, unless an earlier request of this connection could take it for its own answer; then close."""
        if not self._had_request:
            head: tuple[Any, ...] = (status, len(text))
            line = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % head
            self._transport.write(line + text)
        self._transport.close()


def _plain(head: bytes) -> bytes:
    """A head as uvicorn shall see it.

    An offer to speak another protocol (`Upgrade: h2c`, which some clients make with every request) is not taken up: the
    parser would take it as accepted, and the request's body for something else. Of a target such as http://name/path
    the name counts and not the Host header (RFC 9112, 3.2.2), so it becomes the Host that the guard checks; two Host
    headers stay two, and are refused.

    >>> _plain(b"GET http://a.example/jobs HTTP/1.1\\r\\nHost: b.example\\r\\nUpgrade: h2c")
    b'GET /jobs HTTP/1.1\\r\\nhost: a.example\\r\\nx-upgrade: h2c'
    """
    if _UPGRADE.search(head):
        head = _UPGRADE.sub(b"\r\nx-upgrade:", head)
    absolute = _ABSOLUTE.match(head)
    if absolute is not None and len(_HOST.findall(head)) == 1:
        slash = b"" if head[absolute.end() : absolute.end() + 1] == b"/" else b"/"
        head = _HOST.sub(b"\r\nhost: " + absolute[2].replace(b"\\", b""), absolute[1] + slash + head[absolute.end() :])
    return head
