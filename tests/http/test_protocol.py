"""The protocol under the service: what it hands on must be what uvicorn's own hands on."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from accoda import App
from accoda.http import ServiceOptions, create_service
from accoda.http.security import Security
from accoda.http.security.protocol import BoundedProtocol
from accoda.http.server import configuration

JOB = b'{"queue":"emails"}'
POST = (
    b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n"
    + JOB
)


class Line(asyncio.Transport):
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50000), "sockname": ("127.0.0.1", 8000)})
        self.wrote = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.wrote += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Listener:
    """An application that notes what it is asked, and answers in ASGI's messages."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append({name: value for name, value in scope.items() if name != "accoda.wire"})
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


class Talk:
    """One connection to an application, by one protocol."""

    def __init__(self, protocol: type[HttpToolsProtocol], application: Any, **more: Any) -> None:
        config: uvicorn.Config = configuration(application, http=protocol, proxy_headers=False, **more)
        config.load()
        self.state = ServerState()
        self.line = Line()
        self.protocol = protocol(config, self.state, {}, asyncio.get_running_loop())
        self.protocol.connection_made(self.line)

    async def say(self, data: bytes) -> bytes:
        """Send, and wait until all that was asked is answered."""
        before = len(self.line.wrote)
        self.protocol.data_received(data)
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)
            await asyncio.sleep(0)  # what was held for the next turn goes out
        return self.line.wrote[before:]

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
    for protocol in (HttpToolsProtocol, BoundedProtocol):
        listener = Listener()
        talk = Talk(protocol, listener, root_path=root_path, date_header=False)
        answer = await talk.say(data) + await talk.say(b"" if talk.line.closed else POST)
        seen.append((listener.asked, listener.bodies, answer, talk.line.closed))
        talk.hang_up()
    assert seen[0] == seen[1]
    assert seen[0][0][0]["path"].startswith(root_path)


async def test_who_comes_when_there_are_too_many_is_told_so() -> None:
    talk = Talk(BoundedProtocol, listener := Listener(), limit_concurrency=1)
    assert (await talk.say(POST)).startswith(b"HTTP/1.1 503 ")
    assert not listener.asked
    talk.hang_up()


@pytest.mark.parametrize("data", [POST, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["POST", "GET"])
async def test_a_request_that_was_answered_leaves_nothing_to_the_collector(data: bytes) -> None:
    # Twenty objects that hold each other in a circle for each request were a tenth of its cost.
    app = App("memory://")
    await app.connections.get()
    talk = Talk(BoundedProtocol, create_service(app, ServiceOptions(errands=False, policy=Security())), lifespan="off")
    for _ in range(3):  # the first reads the tokens
        assert b" 20" in (await talk.say(data))[:13]
    cycle = weakref.ref(talk.protocol.cycle)
    gc.disable()
    try:
        await talk.say(data)  # the connection knew the last one until now
        assert cycle() is None
    finally:
        gc.enable()
        talk.hang_up()
        await app.close()
