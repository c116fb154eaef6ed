"""The bounds on heads: within them uvicorn sees what the client sent, beyond them the client is told why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from accoda.http.security.connections import Connections
from accoda.http.security.head_bounds import HEAD_COUNT, HEAD_SIZE, BoundedHeads, BoundedState
from accoda.http.server import configuration

JOB = b'{"queue":"emails"}'
POST = (
    b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n"
    + JOB
)


class Connection(asyncio.Transport):
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50000), "sockname": ("127.0.0.1", 8000)})
        self.wrote = b""
        self.closed = self.is_paused = False

    def write(self, data: Any) -> None:
        self.wrote += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Listener:
    """An application that notes what it is asked, and answers in ASGI's messages."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(dict(scope))
        message = await receive()
        body = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


class Talk:
    """One connection to an application, by one protocol."""

    def __init__(self, protocol: type[Any], application: Any, **more: Any) -> None:
        config: uvicorn.Config = configuration(application, http=protocol, proxy_headers=False, **more)
        config.load()
        self.state = BoundedState(Connections())
        self.connection = Connection()
        self.protocol = protocol(config=config, server_state=self.state, app_state={})
        self.protocol.connection_made(self.connection)

    async def say(self, data: bytes) -> bytes:
        """Send, and wait until all that was asked is answered."""
        before = len(self.connection.wrote)
        self.protocol.data_received(data)
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)
        return self.connection.wrote[before:]

    def hang_up(self) -> None:
        self.protocol.connection_lost(None)


TARGETS = {
    "plain": b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "query": b"GET /api/v1/jobs?limit=5&state=dead HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "escapes": b"GET /api/v1/queues/a%20b%C3%A9 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long": b"GET /api/v1/jobs?cursor=" + b"a%20" * 200 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "fragment": b"GET /docs#top HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "old": b"GET /health/live HTTP/1.0\r\nHost: localhost\r\n\r\n",
    "closing": b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "body": POST,
    "expecting": POST.replace(b"host:", b"Expect: 100-continue\r\nhost:"),
    "two at once": POST + POST,
    "no address": b"GET /?x HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("root_path", ["", "/mounted"])
@pytest.mark.parametrize("data", TARGETS.values(), ids=TARGETS.keys())
async def test_an_application_is_asked_and_its_client_answered_as_by_uvicorn(data: bytes, root_path: str) -> None:
    seen = []
    for protocol in (HttpToolsProtocol, BoundedHeads):
        listener = Listener()
        talk = Talk(protocol, listener, root_path=root_path, date_header=False)
        answer = await talk.say(data) + await talk.say(b"" if talk.connection.closed else POST)
        seen.append((listener.asked, listener.bodies, answer, talk.connection.closed))
        talk.hang_up()
    assert seen[0] == seen[1]
    assert seen[0][0][0]["path"].startswith(root_path)


@pytest.mark.parametrize("size", [1, 7, 40])
async def test_a_head_that_arrives_in_pieces_is_one_head(size: int) -> None:
    talk = Talk(BoundedHeads, listener := Listener())
    for at in range(0, len(POST) - size, size):
        talk.protocol.data_received(POST[at : at + size])
    assert (await talk.say(POST[at + size :])).startswith(b"HTTP/1.1 200 ")
    assert (listener.bodies[0], len(listener.asked)) == (JOB, 1)
    talk.hang_up()


@pytest.mark.parametrize("offer", [b"h2c", b"websocket"])
async def test_an_offer_to_upgrade_is_passed_over_and_its_body_is_read(offer: bytes) -> None:
    talk = Talk(BoundedHeads, listener := Listener())
    data = POST.replace(b"host:", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nhost:" % offer)
    for _ in range(2):
        assert (await talk.say(data)).startswith(b"HTTP/1.1 200 ")
    assert listener.bodies == [JOB, JOB]
    talk.hang_up()


@pytest.mark.parametrize(
    "head",
    [
        b"x-long: " + b"a" * HEAD_SIZE + b"\r\n\r\n",
        b"x-a: b\r\n" * (HEAD_COUNT + 2) + b"\r\n",
        b"x-endless: " + b"a" * HEAD_SIZE,
    ],
    ids=["long", "many", "endless"],
)
async def test_a_head_that_is_too_large_is_refused_and_reaches_no_application(head: bytes) -> None:
    talk = Talk(BoundedHeads, listener := Listener())
    assert (await talk.say(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + head)).startswith(b"HTTP/1.1 431 ")
    assert talk.connection.closed
    assert not listener.asked
    talk.hang_up()


async def test_a_large_head_behind_an_unanswered_request_only_closes_the_connection() -> None:
    talk = Talk(BoundedHeads, Listener())
    await talk.say(POST)
    assert await talk.say(b"GET / HTTP/1.1\r\nx-long: " + b"a" * HEAD_SIZE) == b""
    assert talk.connection.closed
    talk.hang_up()


async def test_a_request_beyond_the_limit_of_concurrency_gets_503() -> None:
    talk = Talk(BoundedHeads, listener := Listener(), limit_concurrency=1)
    assert (await talk.say(POST)).startswith(b"HTTP/1.1 503 ")
    assert not listener.asked
    talk.hang_up()
