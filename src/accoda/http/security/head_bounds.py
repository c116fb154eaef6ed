"""Bounds that uvicorn lacks: on the size of a request's head, on the time that it may take to arrive, and on requests
that are sent ahead. `connections.py` has those on connections.

Without them a client could send headers for ever, which would be kept, or open connections and say nothing.

`BoundedHeads` stands between the transport and uvicorn's own protocol and hands on whole heads only. Everything else is
uvicorn's, and what is decided about a request is decided in ASGI, by the guard.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from accoda.http.security.connections import OUTPUT, Connections, Output

HEAD_SIZE = 64 * 1024
"""Bytes of a request line and its headers."""
HEAD_COUNT = 200
"""Headers of one request."""
HEAD_TIME = 15.0
"""Seconds from the first byte (of a new connection: from its opening) to the end of the headers."""

_ANSWER = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})", re.IGNORECASE)
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_ABSOLUTE = re.compile(rb"^([!-~]+ )https?://([^/?# ]*)", re.IGNORECASE)
_HOST = re.compile(rb"\r\nhost:[^\r]*", re.IGNORECASE)


class BoundedState(ServerState):
    """What the connections of a server share: uvicorn hands it to each of them."""

    def __init__(self, bounds: Connections) -> None:
        super().__init__()
        self.bounds = bounds


class _Inner(HttpToolsProtocol):
    """uvicorn's own, which also tells when a request is answered."""

    def __init__(self, answered: Callable[[], None], **given: Any) -> None:
        super().__init__(**given)
        self._answered = answered

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answered()


class BoundedHeads(asyncio.Protocol):
    """One connection. A head that is too large or too slow gets 431 or 408, and the connection is closed.

    Requests are handed on one at a time. What a client sends ahead waits as the bytes that came in one read, and no
    more is read until its turn: uvicorn would make a record of each request in them, a hundred times as large.
    """

    head_time = HEAD_TIME

    def __init__(self, server_state: BoundedState, **given: Any) -> None:
        self._bounds = server_state.bounds
        self._inner = _Inner(self._answered, server_state=server_state, **given)
        self._parser = httptools.HttpRequestParser(self)
        self._waiting = b""
        """What was received and not handed on: an incomplete head, or requests behind one that is not answered."""
        self._in_message = False
        """Whether the last head is complete and its body is still arriving."""
        self._body_left = 0
        """Bytes of that body that are still to come, where its length was told."""
        self._tail = b""
        """The last bytes of that body that were handed on, where it comes in chunks."""
        self._is_unanswered = False
        """Whether the last request that was handed on waits for its answer."""
        self._had_request = False
        """Whether a whole request has come on this connection: it may still wait for its answer."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = Output(cast(asyncio.Transport, transport))
        if not self._bounds.enter(self._transport):
            self._refuse(
                b"503 Service Unavailable\r\nretry-after: 1", b"Too many connections are open; try again later."
            )
            return
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=OUTPUT)
        self._inner.connection_made(self._transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._bounds.leave(self._transport):
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        self._hand_on()

    def _answered(self) -> None:
        self._is_unanswered = False
        if self._waiting:
            self._transport.resume_reading()
            self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting and not self._transport.is_closing():
            if self._in_message:
                self._hand_on_body()
            elif self._is_unanswered:
                self._transport.pause_reading()
                return
            elif not self._hand_on_head():
                return

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._had_request:  # it must not take an answer to this one for its own
                self._transport.close()
                return
            # Otherwise uvicorn finds the same and answers with 400.
        except httptools.HttpParserUpgrade:  # CONNECT
            self._refuse(b"400 Bad Request", b"This server is no proxy.")
            return
        self._inner.data_received(data)

    # -- what the parser tells: where a message's body begins and ends

    def on_headers_complete(self) -> None:
        self._in_message = self._is_unanswered = True

    def on_message_complete(self) -> None:
        self._in_message, self._had_request = False, True

    # -- heads and bodies. The parser does not tell where in the data a message ends, but no piece that it gets may
    # reach into the next message.

    def _hand_on_head(self) -> bool:
        """Hand on a head, and its body if that is there; False: the head is incomplete, or was refused."""
        data = self._waiting.lstrip(b"\r\n")  # a parser passes over them, too
        end = data.find(_END)
        if end > HEAD_SIZE or (end < 0 and len(data) > HEAD_SIZE) or data.count(b"\r\n", 0, end) > HEAD_COUNT:
            self._refuse(b"431 Request Header Fields Too Large", b"The headers are too many or too large.")
            return False
        if end < 0:
            self._waiting = data
            if self._timer is None:
                self._start_timer()
            return False
        self._stop_timer()
        length = _LENGTH.search(data, 0, end)
        whole = end + len(_END) + (0 if length is None else int(length[1]))
        self._body_left, self._tail = max(0, whole - len(data)), b""
        self._waiting = data[whole:]
        self._feed(_plain(data[:end]) + data[end:whole])
        return True

    def _hand_on_body(self) -> None:
        if self._body_left:
            data = self._waiting[: self._body_left]
            self._waiting = self._waiting[self._body_left :]
            self._body_left -= len(data)
            self._feed(data)
            return
        # In chunks: such a message ends with an empty line, so that is where pieces end. The line may have begun in
        # what was handed on before.
        data, start = self._tail + self._waiting, len(self._tail)
        while self._in_message and start < len(data) and not self._transport.is_closing():
            end = data.find(_END, max(0, start - 3))
            end = len(data) if end < 0 else end + len(_END)
            self._feed(data[start:end])
            start = end
        self._tail, self._waiting = data[max(0, start - 3) : start], data[start:]

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
            self._transport.write(_ANSWER % (status, len(text)) + text)
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
