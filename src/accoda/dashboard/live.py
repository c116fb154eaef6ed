"""Live pages: one rendering for all viewers of the same page with the same rights, sent to them when it has changed.

While a page has viewers, one loop renders it every two seconds. It does not send: each viewer's stream waits for the
page's next event, and takes the newest when it is ready. So a slow client misses what was in between, and delays no
other. A rendering that has changed nothing is told too, in a few bytes: a page that hears nothing for some seconds
knows that what it shows may be out of date, whether the service is gone or its store hangs.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from accoda.dashboard.answers import SAFE
from accoda.dashboard.forms import query_of
from accoda.dashboard.routes import is_local
from accoda.http.event_stream import BEAT, STILL_HERE, Ends, event_of, event_stream, send_event
from accoda.http.long_polls import LongPolls
from accoda.http.prefix import prefix
from accoda.http.problems import ProblemError, from_error, send_problem
from accoda.http.security.identity import LOCAL, Identity

log = logging.getLogger("accoda.dashboard")

Scope = MutableMapping[str, Any]
Part = Callable[[str, Identity], Awaitable[str]]
MayStay = Callable[[], Awaitable[bool]]
Key = tuple[str, frozenset[str], str]
"""The address of a page, the rights of its viewers, and the prefix in its links."""

EVERY = 2.0
"""Seconds from one rendering to the next."""
SHARE = 0.2
"""The largest share of one core for all live pages together: beyond it, they are rendered less often."""
TROUBLED = 10.0
"""Seconds until a page that failed is rendered again: each failure may be a line in the log."""
MOST_PAGES = 500
MOST_WATCHERS = 5000

TROUBLE, STALE = "trouble", "stale"
SAME = b"event: same\ndata:\n\n"
"""What is sent where a rendering has changed nothing."""
_TIMES = re.compile(r"(<(?:time |tspan data-since=)[^>]*>)[^<]*")


class LivePage:
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
        self._next: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self.watchers += 1
        if self._loop is None:
            self._loop = asyncio.get_running_loop().create_task(self._run())

    def leave(self) -> bool:
        """True: it has no viewers now, and its loop has ended."""
        self.watchers -= 1
        if self.watchers or self._loop is None:
            return False
        self._loop.cancel()
        self._loop = None
        return True

    def next_event(self) -> asyncio.Future[None]:
        """Done when the page was rendered again. Shared by all viewers: it must not be cancelled."""
        return self._next

    def refresh(self) -> None:
        """Render at once: something was changed."""
        self._changed.set()

    async def run_once(self) -> None:
        """Render, and wake the viewers: with the page if it is another than before, with trouble once."""
        try:
            text = await self._part(self.key[0], Identity("", self.key[1]))
            name, shown = "live", _TIMES.sub(r"\1", text)
        except Exception as error:
            problem = from_error(error).problem
            # The store may be back at any moment, a page that is not there will not. The details of trouble may vary:
            # one of them is enough.
            name = shown = STALE if problem.status == 503 else TROUBLE
            text = problem.detail
        if shown != self._shown:
            self._shown, self.event = shown, event_of(name, text)
            self.number += 1
        elif name != "live":
            return
        # No await between the two: a viewer gets the old future, which is done, or the new one.
        past, self._next = self._next, asyncio.get_running_loop().create_future()
        past.set_result(None)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            began = time.perf_counter()
            await self.run_once()
            failed = self._shown in (TROUBLE, STALE)
            # Of a store that hangs the time was waited and not used: it must not delay the pages when it is back.
            self.took = 0.0 if failed else time.perf_counter() - began
            try:
                async with asyncio.timeout(max(self._pause(), TROUBLED if failed else 0.0)):
                    await self._changed.wait()
            except TimeoutError:
                continue


class LivePages:
    """All pages that have viewers. For one event loop."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.pages: dict[Key, LivePage] = {}
        self.watchers = 0

    def enter(self, address: str, identity: Identity) -> LivePage:
        key = (address, identity.scopes, prefix.get())
        page = self.pages.get(key)
        if self.watchers >= MOST_WATCHERS or (page is None and len(self.pages) >= MOST_PAGES):
            raise ProblemError(
                "busy", "too many live pages are open; this one is not updated", headers=(("retry-after", "30"),)
            )
        if page is None:
            page = self.pages[key] = LivePage(key, self._part, self._pause)
        self.watchers += 1
        page.enter()
        return page

    def leave(self, page: LivePage) -> None:
        self.watchers -= 1
        if page.leave():
            del self.pages[page.key]

    def _pause(self) -> float:
        """Seconds from one rendering to the next, so that all pages stay within their share."""
        return max(EVERY, sum(page.took for page in self.pages.values()) / SHARE)

    def refresh(self) -> None:
        """Render every page at once: something was changed."""
        for page in self.pages.values():
            page.refresh()


class Host(Protocol):
    """What a stream needs of the dashboard."""

    polls: LongPolls
    live_pages: LivePages

    async def may_stay(self, scope: Scope) -> bool: ...


async def stream(dashboard: Host, scope: Scope, receive: Any, send: Any) -> None:
    """Answer `/live?page=…` until the client or the service leaves, or the viewer's rights end."""
    try:
        page = _page(dashboard, scope)
    except Exception as error:
        await send_problem(send, from_error(error))
        return
    try:
        async with event_stream(dashboard.polls, receive, send, SAFE) as ends:
            if scope["method"] != "HEAD":
                await _send_events(page, ends, lambda: dashboard.may_stay(scope), send)
    finally:
        dashboard.live_pages.leave(page)


async def _send_events(page: LivePage, ends: Ends, may_stay: MayStay, send: Any) -> None:
    seen = 0
    while True:
        if page.number != seen:
            seen = page.number
            await send_event(send, page.event)
            continue  # there may be another by now
        done, _ = await asyncio.wait((page.next_event(), *ends), timeout=BEAT, return_when=asyncio.FIRST_COMPLETED)
        if any(end.done() for end in ends) or not await may_stay():
            return
        if page.number == seen:
            await send_event(send, SAME if done else STILL_HERE)


def _page(dashboard: Host, scope: Scope) -> LivePage:
    identity: Identity = scope.get("accoda.identity", LOCAL)
    if not identity.may("read"):
        raise ProblemError("unauthorized", "log in at /login")
    address = query_of(scope["query_string"]).get("page", "")
    if not is_local(address):
        raise ProblemError("invalid", "page: must be the path of a page, with its query", field="page")
    return dashboard.live_pages.enter(address, identity)
