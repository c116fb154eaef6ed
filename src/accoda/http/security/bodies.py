"""What is read of a body, and in which time: it is read whole, once, before anything is done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from msgspec import Struct

from accoda.http.security import refusals

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

MIB = 1 << 20
AT_ONCE = 64 * MIB
"""Bytes of bodies that are being read, over all requests. A small body, which comes in one piece, is not counted."""


class Limits(Struct, frozen=True, kw_only=True):
    """`body`, `path`, `query` in bytes; `jobs` in one request; `body_time`: seconds until a body must be complete."""

    body: int = 16 * MIB
    jobs: int = 10_000
    body_time: float = 30.0
    path: int = 2048
    query: int = 8192


class ClientGone(Exception):
    """The client hung up in the middle of its body: there is no one to answer."""


def is_json(content_type: bytes) -> bool:
    """Whether a Content-Type says JSON in UTF-8: what a form of a web page cannot say without a preflight.

    >>> is_json(b"application/json; charset=UTF-8"), is_json(b"application/merge-patch+json"), is_json(b"text/plain")
    (True, True, False)
    """
    if content_type == b"application/json":
        return True
    kind, _, parameters = content_type.lower().partition(b";")
    kind, charset = kind.strip(), parameters.strip().replace(b'"', b"")
    good = kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))
    return good and charset in (b"", b"charset=utf-8")


def read_length(value: bytes) -> int:
    """The number in a Content-Length; more digits than any body has are as bad as none at all."""
    if not value.isdigit() or len(value) > 18:
        raise refusals.bad_length()
    return int(value)


class Deadlines:
    """Ends those that take longer than `seconds`, with one timer for all: `asyncio.timeout` for each request would cost
    more than all that the guard does beside it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[asyncio.Task[Any], float] = {}  # all get the same time, so the first in it is the first due
        self._over: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, task: asyncio.Task[Any]) -> None:
        loop = asyncio.get_running_loop()
        self._until[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)

    def leave(self, task: asyncio.Task[Any]) -> None:
        self._until.pop(task, None)
        self._over.discard(task)

    def ended(self, task: asyncio.Task[Any]) -> bool:
        """Whether a cancellation was ours alone; if another cancelled the task too, it must be passed on."""
        return task in self._over and task.uncancel() == 0

    def _look(self) -> None:
        # A task that is in the dict waits inside `read`: so the cancellation is seen there and nowhere else.
        self._timer, loop = None, asyncio.get_running_loop()
        for task, until in list(self._until.items()):
            if until > loop.time():
                self._timer = loop.call_at(until, self._look)
                return
            del self._until[task]
            self._over.add(task)
            task.cancel()


class Bodies:
    """Reads bodies, and knows how much is being read at the moment. For one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._deadlines = Deadlines(limits.body_time)
        self._held = 0

    async def read(self, receive: Receive) -> bytes:
        """The whole body. It is cut off as soon as it is over the limit: no more than that is ever held."""
        task = asyncio.current_task()
        assert task is not None
        self._deadlines.enter(task)
        try:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body: bytes = message.get("body", b"")
            if message.get("more_body"):
                return await self._rest(receive, body)
        except asyncio.CancelledError:
            if self._deadlines.ended(task):
                raise refusals.too_slow(self._limits.body_time) from None
            raise
        finally:
            self._deadlines.leave(task)
        if len(body) > self._limits.body:
            raise refusals.too_large(self._limits.body)
        return body

    async def _rest(self, receive: Receive, first: bytes) -> bytes:
        # One growing buffer, not a list of parts: a client that sends a byte at a time would make the list far larger
        # than the body.
        body, counted, more = bytearray(first), 0, True
        try:
            while True:
                if len(body) > self._limits.body:
                    raise refusals.too_large(self._limits.body)
                self._held += len(body) - counted
                counted = len(body)
                if self._held > max(AT_ONCE, self._limits.body):
                    raise refusals.busy()
                if not more:
                    return bytes(body)
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                body += message.get("body", b"")
                more = message.get("more_body", False)
        except BaseException:
            body.clear()  # an error holds the frames that it came through, and would hold this as long as it lives
            raise
        finally:
            self._held -= counted


async def linger(receive: Receive, seconds: float = 1.0, most: int = 256 * MIB) -> None:
    """Read on for a moment and throw away what comes.

    A connection that is closed while the client still sends is reset, and the answer that says why may be lost with
    it. Nothing is kept; it ends with the body, after a second, or after so many bytes.
    """
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
            while message["type"] == "http.request" and message.get("more_body") and most > 0:
                most -= len(message.get("body", b""))
                message = await receive()
    except TimeoutError:
        pass
