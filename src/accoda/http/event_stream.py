"""Answers of server-sent events: how they begin, what ends them, and how an event looks on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from accoda.http.long_polls import LongPolls

BEAT = 15.0
"""Seconds after which something is sent to a client even if nothing changed: that finds clients that are gone."""
STILL_HERE = b": still here\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # or nginx would buffer it
)
Ends = tuple[asyncio.Future[None], asyncio.Future[None]]


@asynccontextmanager
async def event_stream(
    polls: LongPolls, receive: Any, send: Any, headers: Iterable[tuple[bytes, bytes]] = ()
) -> AsyncIterator[Ends]:
    """Begin an answer, and end it with the block. Gives what is done when the client or the service leaves."""
    leaving = polls.enter()
    gone = asyncio.ensure_future(hung_up(receive))
    try:
        await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})
        await send_event(send, b"retry: 3000\n\n")
        yield gone, leaving
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        polls.leave(leaving)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)


async def send_event(send: Any, event: bytes) -> None:
    """Send one event, or a comment."""
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def hung_up(receive: Any) -> None:
    """Wait until the client has gone. Whatever it still sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass


def event_of(name: str, text: str, id: str | None = None) -> bytes:
    r"""An event as it goes over the wire. `id` is what the client says when it connects again: where it was.

    >>> event_of("live", "<p>\n</p>"), event_of("progress", "{}", "7")
    (b'event: live\ndata: <p>\ndata: </p>\n\n', b'id: 7\nevent: progress\ndata: {}\n\n')
    """
    lines = "\ndata: ".join(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    mark = "" if id is None else f"id: {id}\n"
    return f"{mark}event: {name}\ndata: {lines}\n\n".encode("utf-8", "replace")
