"""uvicorn's HTTP protocol with the two bounds that it lacks: on the head of a request, and on the time for it.

Without them a client could send headers for ever, which would be kept, or open connections and say nothing. And answers
go out in one piece: uvicorn writes head and body apart, and each write wakes the client. Offers to upgrade are passed
over, and who hangs up or breaks off is noticed also where he sent several requests at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

HEAD_SIZE = 64 * 1024
"""Bytes of a request line and its headers."""
HEAD_COUNT = 200
HEAD_TIME = 15.0
"""Seconds from the first byte (of a new connection: from its opening) to the end of the headers."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class Joined:
    """A transport that sends the head of an answer together with what follows it in the same turn of the loop.

    What is held goes out before all else, so nothing changes its place: the next write takes it along, `close`
    sends it first, and if neither comes in this turn (a stream, a 100 Continue) it goes by itself in the next one.
    """

    __slots__ = ("_held", "_loop", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""
        self.is_closing = transport.is_closing  # asked for at every request, and `__getattr__` is slow

    def write(self, data: bytes) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def write_whole(self, data: bytes) -> None:
        """Send at once what nothing follows."""
        if self._held:
            self._flush()
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Cycle(RequestResponseCycle):
    """One request and its answer: uvicorn's, with a short way past ASGI's messages for a request that has come whole
    and an answer that is ready in one piece.

    It stands in the scope as `accoda.wire`; who does not know it reads and sends as always. uvicorn awaits each message
    and looks at each header of each answer with two patterns; ours are constants, and that is most of their cost.

    The scope and this hold each other: who answers takes it out of the scope, and so spares Python's collector a circle
    of twenty objects for each request.
    """

    # What begins alike for every request stands here once: setting all of it in each made 0.9 µs of 0.3.
    disconnected = False
    more_body = True
    response_started = response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, protocol: BoundedProtocol, keep_alive: bool) -> None:
        self.scope = protocol.scope
        self.transport = protocol.transport
        self.flow = protocol.flow
        self.logger, self.access_logger = protocol.logger, protocol.access_logger
        self.access_log = protocol.access_log
        self.default_headers = protocol.server_state.default_headers
        self.message_event = asyncio.Event()
        self.on_response = protocol.on_response_complete
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.body = bytearray()

    def whole_body(self) -> bytes | None:
        """The body, if all of it is here; None: `receive` it. What is given here is not received again."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue:
            return None
        body = bytes(self.body)
        self.body = bytearray()
        # What a `receive` waits for from now on is that the client goes; for that it has to be read from again, which
        # a large body has stopped.
        self.message_event.clear()
        self.flow.resume_reading()
        return body

    def answer(self, status: int, head: bytes, body: bytes) -> bool:
        """Send a whole answer; `head` are its headers as they go out, but for the length. False: `send` it."""
        if self.response_started or self.disconnected or self.flow.write_paused or self.access_log:
            return False
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        parts = [STATUS_LINE[status], head, b"content-length: %d\r\n" % len(body)]
        for name, value in self.default_headers:
            parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", body)
        cast(Joined, self.transport).write_whole(b"".join(parts))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


def read_target(url: bytes) -> tuple[str, bytes, bytes]:
    """The path of a request as text and as it came, and its query."""
    parsed = httptools.parse_url(url)
    raw = parsed.path
    path = raw.decode("ascii")
    return unquote(path) if "%" in path else path, raw, parsed.query or b""


read_again = lru_cache(256)(read_target)
"""For the few targets that most requests are for. Not for long ones: whoever sends them would fill the memory."""
LONG = 256


class _WithoutHead:
    """Stands between a parser and its protocol, which knows the first head already: it is told of all but that."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol
        self._known = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._known:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._known:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._known:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._known:
            self._known = False
        else:
            self._protocol.on_headers_complete()


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A head that is too large or too slow gets 431 or 408, and the connection is closed."""

    head_time = HEAD_TIME

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, Joined(transport, self.loop))
        self._in_head = False
        self._idle_since = 0.0
        self._size = self._piece = 0
        self._before: deque[RequestResponseCycle] = deque()
        """Requests that were not yet answered when the next one came."""
        self._timer: asyncio.TimerHandle | None = None
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        for cycle in self._before:  # uvicorn tells it to the last one alone
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._piece = len(data)
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        # Only a head that did not come whole is counted here: the usual request costs nothing.
        if self._in_head and not self.transport.is_closing():
            self._size += len(data)
            if self._size > HEAD_SIZE:
                self._end(b"431 Request Header Fields Too Large", b"The headers are too large.")
            elif self._timer is None:
                self._start_timer()

    def _feed(self, data: bytes) -> None:
        """Parse. An offer to speak another protocol (`Upgrade: h2c`, which some clients make with every request) is not
        taken up, and what follows the head is its body, as with any other request.

        The parser takes the offer as accepted, the message as ended, and the body for a request of its own.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                self._prime()

    def _prime(self) -> None:
        """Put a parser that has read this request's head, without the offer, in the place of the one that stopped."""
        framing = b"".join(b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING)
        self.parser = httptools.HttpRequestParser(_WithoutHead(self) if framing else self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        if framing:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)

    def send_400_response(self, msg: str) -> None:
        if self._is_owing():
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _is_owing(self) -> bool:
        """Whether a request before the bad one has no answer yet: it must not take this one for its own."""
        last = self.cycle
        whole = last is not None and (self._in_head or not last.more_body)
        return (whole and not last.response_complete) or not all(cycle.response_complete for cycle in self._before)

    def on_message_complete(self) -> None:
        if not (self.parser.should_upgrade() and any(name in _FRAMING for name, _ in self.headers)):
            super().on_message_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._size = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        # A head is never larger than the pieces that it came in, and those are small but for who means harm.
        large = self._size + self._piece > HEAD_SIZE
        if len(self.headers) > HEAD_COUNT or (large and sum(len(n) + len(v) for n, v in self.headers) > HEAD_SIZE):
            raise ValueError("the headers are too many or too large")  # the parser makes it a 400
        if not self.url.startswith(b"/"):
            self._use_target()
        before, cycle, app = self.cycle, self._begin(), self._application()
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, app)
            return
        self.flow.pause_reading()
        self.pipeline.appendleft((cycle, app))
        while self._before and self._before[0].response_complete:  # they are answered in their order
            self._before.popleft()
        self._before.append(before)

    def _begin(self) -> Cycle:
        """The rest of the scope, and the cycle: what uvicorn's own `on_headers_complete` makes, in fewer steps."""
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        if version != "1.1":
            scope["http_version"] = version
        scope["method"] = parser.get_method().decode("ascii")
        url = self.url
        path, raw_path, scope["query_string"] = read_again(url) if len(url) < LONG else read_target(url)
        if self.root_path:
            path, raw_path = self.root_path + path, self.root_path.encode("ascii") + raw_path
        scope["path"], scope["raw_path"] = path, raw_path
        self.cycle = cycle = Cycle(self, version != "1.0" and parser.should_keep_alive())
        scope["accoda.wire"] = cycle  # type: ignore[typeddict-unknown-key]
        return cycle

    def _application(self) -> Any:
        most = self.limit_concurrency
        crowded = most is not None and max(len(self.connections), len(self.tasks)) >= most
        return service_unavailable if crowded else self.app

    # One timer for a connection that is used again and again, not one for each request: it looks how long nothing has
    # come when it rings. uvicorn's own two are a large part of what a small request costs.

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = 0.0

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._idle_since = 0.0
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing() or not self._idle_since:
            return  # a request is under way: its end sets the timer again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left <= 0.001:
            self.transport.close()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)

    def _use_target(self) -> None:
        """Of a target such as http://name/path, the name counts and not the Host header (RFC 9112, 3.2.2).

        So it is the name that the guard looks at. Two Host headers stay two, and are refused.
        """
        _, found, rest = self.url.partition(b"://")
        hosts = [header for header in self.headers if header[0] == b"host"]
        if found and len(hosts) <= 1:
            authority = rest.partition(b"/")[0].partition(b"?")[0]
            # In place: the scope holds this very list.
            self.headers[:] = [(b"host", authority), *(header for header in self.headers if header[0] != b"host")]

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.head_time, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        self._end(b"408 Request Timeout", b"The request did not come in time.")

    def _end(self, status: bytes, text: bytes) -> None:
        if self._is_owing():
            self.transport.close()
            return
        head: tuple[Any, ...] = (status, len(text))
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % head + text
        )
        self.transport.close()
