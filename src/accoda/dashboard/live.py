"""Live pages: one rendering for all who watch the same page with the same rights, sent to them when it has changed.

A room is a page with rights. While somebody is in it, one loop renders it every two seconds; it sends to nobody by
itself: whoever watches waits for the room's next news, and takes the newest when he is ready. So a slow client misses
what was between, and holds up nobody.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from accoda.dashboard.answers import SAFE
from accoda.dashboard.calls import Viewer, is_local
from accoda.dashboard.forms import query_of
from accoda.http.call import ANYBODY
from accoda.http.problems import ProblemError, from_error, send_problem

if TYPE_CHECKING:
    from accoda.dashboard.dashboard import Dashboard

log = logging.getLogger("accoda.dashboard")

Scope = MutableMapping[str, Any]
Part = Callable[[str, Viewer], Awaitable[str]]
MayStay = Callable[[], Awaitable[bool]]
Key = tuple[str, frozenset[str]]

EVERY = 2.0
"""Seconds from one rendering to the next."""
SHARE = 0.2
"""The most of one core that all rooms together may take: where that is not enough, they are made less often."""
TROUBLED = 10.0
"""Seconds until a page is tried again that could not be made: each failure may be a line in the log."""
BEAT = 15.0
"""Seconds after which something is said to a client if only that nothing happened: who is gone is noticed by it."""
MOST_ROOMS = 500
MOST_WATCHERS = 5000
RIGHTS = ("read", "enqueue", "work", "admin")

TROUBLE = "trouble"
_TIMES = re.compile(r"(<time [^>]*>)[^<]*")


class Rights:
    """Somebody with these scopes, whoever he is."""

    name = ""

    def __init__(self, scopes: frozenset[str]) -> None:
        self._scopes = scopes

    def may(self, scope: str) -> bool:
        return scope in self._scopes


class Room:
    """One page, with one set of rights, and its last event as it goes over the wire."""

    def __init__(self, key: Key, part: Part, pause: Callable[[], float]) -> None:
        self.key = key
        self.took = 0.0
        self._pause = pause
        self.event = b""
        self.number = 0
        self.watchers = 0
        self._part = part
        self._shown = ""
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._poked = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self.watchers += 1
        if self._loop is None:
            self._loop = asyncio.get_running_loop().create_task(self._run())

    def leave(self) -> bool:
        """True: the room is empty now, and its loop has ended."""
        self.watchers -= 1
        if self.watchers or self._loop is None:
            return False
        self._loop.cancel()
        self._loop = None
        return True

    def news(self) -> asyncio.Future[None]:
        """Done when there is another event than the present one. Shared by all: nobody may cancel it."""
        return self._news

    def poke(self) -> None:
        """Render at once: something was changed."""
        self._poked.set()

    async def run_once(self) -> None:
        """Render, and tell those who wait if it is another page than before."""
        try:
            text = await self._part(self.key[0], Rights(self.key[1]))
            name, shown = "live", _TIMES.sub(r"\1", text)
        except Exception as error:
            name, text = TROUBLE, from_error(error).problem.detail
            shown = TROUBLE  # details may differ from time to time; one of them is enough
        if shown == self._shown:
            return
        self._shown, self.event = shown, event_of(name, text)
        self.number += 1
        # No await between the two: whoever asks for news gets the old future, which is done, or the new one.
        told, self._news = self._news, asyncio.get_running_loop().create_future()
        told.set_result(None)

    async def _run(self) -> None:
        while True:
            self._poked.clear()
            began = time.perf_counter()
            await self.run_once()
            self.took = time.perf_counter() - began
            try:
                async with asyncio.timeout(max(self._pause(), TROUBLED if self._shown == TROUBLE else 0.0)):
                    await self._poked.wait()
            except TimeoutError:
                continue


class Hub:
    """All rooms. For one event loop."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.rooms: dict[Key, Room] = {}
        self.watchers = 0

    def enter(self, address: str, who: Viewer) -> Room:
        key = (address, frozenset(scope for scope in RIGHTS if who.may(scope)))
        room = self.rooms.get(key)
        if self.watchers >= MOST_WATCHERS or (room is None and len(self.rooms) >= MOST_ROOMS):
            raise ProblemError(
                "busy", "too many live pages are open; this one stands still", headers=(("retry-after", "30"),)
            )
        if room is None:
            room = self.rooms[key] = Room(key, self._part, self._pause)
        self.watchers += 1
        room.enter()
        return room

    def leave(self, room: Room) -> None:
        self.watchers -= 1
        if room.leave():
            del self.rooms[room.key]

    def _pause(self) -> float:
        """Seconds from one rendering of a room to the next, so that all of them stay within their share."""
        return max(EVERY, sum(room.took for room in self.rooms.values()) / SHARE)

    def poke(self) -> None:
        """Render every page at once that somebody watches: something was changed."""
        for room in self.rooms.values():
            room.poke()


async def stream(dashboard: Dashboard, scope: Scope, receive: Any, send: Any) -> None:
    """Answer `/live?page=…` until the client or the service leaves, or the right to see it ends."""
    try:
        room = _room(dashboard, scope)
    except Exception as error:
        await send_problem(send, from_error(error))
        return
    leaving = dashboard.polls.enter()
    gone = asyncio.ensure_future(_hung_up(receive))
    try:
        await _begin(send)
        if scope["method"] != "HEAD":
            await _tell(room, (gone, leaving), lambda: dashboard.may_stay(scope), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        dashboard.hub.leave(room)
        dashboard.polls.leave(leaving)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)


async def _tell(room: Room, ends: tuple[asyncio.Future[None], ...], may_stay: MayStay, send: Any) -> None:
    seen = 0
    while True:
        if room.number != seen:
            seen = room.number
            await send({"type": "http.response.body", "body": room.event, "more_body": True})
            continue  # while it was sent, there may have been more
        done, _ = await asyncio.wait((room.news(), *ends), timeout=BEAT, return_when=asyncio.FIRST_COMPLETED)
        if any(end.done() for end in ends) or not await may_stay():
            return
        if not done:
            await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})


def _room(dashboard: Dashboard, scope: Scope) -> Room:
    who: Viewer = scope.get("accoda.who", ANYBODY)
    if not who.may("read"):
        raise ProblemError("unauthorized", "log in at /login")
    address = query_of(scope["query_string"]).get("page", "")
    if not is_local(address):
        raise ProblemError("invalid", "page: must be the path of a page, with its query", field="page")
    return dashboard.hub.enter(address, who)


async def _begin(send: Any) -> None:
    headers = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),  # nginx would gather what is sent
        *SAFE,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"retry: 3000\n\n", "more_body": True})


async def _hung_up(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event_of(name: str, text: str) -> bytes:
    r"""An event as it goes over the wire.

    >>> event_of("live", "<p>\n</p>")
    b'event: live\ndata: <p>\ndata: </p>\n\n'
    """
    lines = "\ndata: ".join(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return f"event: {name}\ndata: {lines}\n\n".encode("utf-8", "replace")
