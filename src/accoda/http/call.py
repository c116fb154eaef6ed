"""What a handler of the service is given, and what it may give back beside a plain value."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, MutableMapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from accoda.http.event_stream import hung_up
from accoda.http.security.identity import LOCAL, Identity, check_queue

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.long_polls import LongPolls
    from accoda.http.options import ServiceOptions

B = TypeVar("B")
Q = TypeVar("Q")
P = TypeVar("P")
T = TypeVar("T")

Headers = Iterable[tuple[str, str]]


class Answer(Struct, frozen=True):
    """A value with another status than the usual one, or with headers. `value` None with status 204: no body."""

    value: Any
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Raw(Struct, frozen=True):
    """Bytes as they are."""

    body: bytes
    content_type: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class ClientGone(Exception):
    """The caller hung up while it was waiting: there is no one to answer."""


class Call(Generic[B, Q, P]):
    """One request: the decoded body, query and path of the operation's types, and the identity of its caller."""

    __slots__ = ("_polls", "_receive", "_scope", "app", "body", "identity", "options", "path", "query", "raw")

    def __init__(
        self, app: App, options: ServiceOptions, polls: LongPolls, scope: MutableMapping[str, Any], receive: Any
    ) -> None:
        self.app = app
        self.options = options
        self._polls = polls
        self._scope = scope
        self._receive = receive
        # Without a guard in front, every caller may do everything.
        self.identity: Identity = scope.get("accoda.identity", LOCAL)
        self.body: B
        self.query: Q
        self.path: P
        self.raw = b""
        """The body as it came."""

    def header(self, name: str) -> str | None:
        """The value of a header, or None; of one that came twice, the first."""
        wanted = _wire_name(name)
        for key, value in self._scope["headers"]:
            if key == wanted:
                return str(value, "latin-1")
        return None

    def check_queue(self, queue: str | None) -> None:
        """Refuse a caller that is limited to other queues. None: it asks for all of them."""
        check_queue(self.identity, queue)

    @property
    def target(self) -> str:
        """The path that was asked for."""
        return str(self._scope["path"])

    async def poll(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """Wait for something on behalf of the caller; None: the service is leaving, so answer as if time were up.

        Raises `ClientGone` when the caller hangs up. Either way `waiting` is cancelled first: it must be something
        that loses nothing by that, a wait and not a take.
        """
        work = asyncio.ensure_future(waiting)
        gone = asyncio.ensure_future(hung_up(self._receive))
        leaving = self._polls.enter()
        try:
            await asyncio.wait((work, gone, leaving), return_when=asyncio.FIRST_COMPLETED)
            # The hang-up first: whatever the wait found, there is no one to tell.
            if gone.done():
                raise ClientGone
            return work.result() if work.done() else None
        finally:
            self._polls.leave(leaving)
            for future in (work, gone):
                future.cancel()
            # Both are waited for, so that no cancelled call is still at work in the store when the answer goes out.
            await asyncio.gather(work, gone, return_exceptions=True)


@lru_cache(64)
def _wire_name(name: str) -> bytes:
    return name.lower().encode("latin-1")
