"""The jobs that streams of events wait for: looked at by one loop for all of them, and only while somebody waits.

A store tells nobody that a job has ended, so it has to be asked. One loop for each app asks for all watched jobs in one
turn, whatever the number of clients, and takes at most a fifth of the time for it: with very many jobs it asks less
often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from accoda.app import App
from accoda.errors import AccodaError
from accoda.http.long_polls import LongPolls
from accoda.model import ById, JobInfo
from accoda.runtime.results import Progress, progress_of

log = logging.getLogger("accoda.asgi")

EVERY = 0.25
"""Seconds from one look to the next."""
SHARE = 0.2
"""The largest share of the time that is spent with looking."""
TROUBLED = 2.0
"""Seconds to the next look at a store that failed."""
ENDED = ("done", "dead", "cancelled")


class View(Struct, frozen=True):
    """What is known of a job at a moment. `told` counts what its handler said of its progress; it only grows."""

    job: JobInfo | None
    progress: Progress | None = None
    told: int = 0

    @property
    def state(self) -> str:
        """`gone`: it is not stored (any more)."""
        return "gone" if self.job is None else self.job.state

    @property
    def ended(self) -> bool:
        return self.job is None or self.job.state in ENDED


async def look_at(app: App, id: int) -> View:
    """A job and its progress, now."""
    store = await app.connections.get()
    # The job first: progress that is read after the end of a job is all that there will be.
    job = (await store.look(ById(id))).job
    progress, told = await progress_of(store, id)
    return View(job, progress, told)


class Watch:
    """One job that somebody waits for."""

    def __init__(self, id: int, view: View) -> None:
        self.id = id
        self.view = view
        self.viewers = 0
        self.changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the view is another. Shared by all viewers: it must not be cancelled."""

    def show(self, view: View) -> None:
        if (view.state, view.told) != (self.view.state, self.view.told):
            self.view = view
            # No await between the two: a viewer gets the old future, which is done, or the new one.
            past, self.changed = self.changed, asyncio.get_running_loop().create_future()
            past.set_result(None)


class Watches:
    """The watched jobs of an app, on one event loop."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._jobs: dict[int, Watch] = {}
        self._loop: asyncio.Task[None] | None = None

    def enter(self, id: int, view: View) -> Watch:
        watch = self._jobs.setdefault(id, Watch(id, view))
        watch.show(view)
        watch.viewers += 1
        if self._loop is None:
            self._loop = asyncio.get_running_loop().create_task(self._run(), name="accoda-watched-jobs")
        return watch

    def leave(self, watch: Watch) -> bool:
        """True: nobody waits for any job now, and the loop has ended."""
        watch.viewers -= 1
        if not watch.viewers:
            del self._jobs[watch.id]
        if self._jobs or self._loop is None:
            return False
        self._loop.cancel()
        self._loop = None
        return True

    async def run_once(self) -> None:
        """Look at every job that has not ended."""
        watched = [each for each in self._jobs.values() if not each.view.ended]
        views = await asyncio.gather(*(look_at(self._app, each.id) for each in watched))
        for each, view in zip(watched, views, strict=True):
            each.show(view)

    async def _run(self) -> None:
        pause = EVERY
        while True:
            await asyncio.sleep(pause)
            began = time.perf_counter()
            try:
                await self.run_once()
                pause = max(EVERY, (time.perf_counter() - began) / SHARE)
            except AccodaError as error:
                log.warning("cannot look at %d jobs, trying again soon: %s", len(self._jobs), error)
                pause = TROUBLED


_watches: dict[tuple[App, Any], Watches] = {}
_streams: WeakKeyDictionary[asyncio.AbstractEventLoop, LongPolls] = WeakKeyDictionary()


def watch(app: App, id: int, view: View) -> Watch:
    """Wait for a job. `unwatch` has to follow."""
    key = (app, asyncio.get_running_loop())
    return _watches.setdefault(key, Watches(app)).enter(id, view)


def unwatch(app: App, watched: Watch) -> None:
    """Wait no more. What nobody waits for is forgotten."""
    key = (app, asyncio.get_running_loop())
    if _watches[key].leave(watched):
        del _watches[key]


def streams() -> LongPolls:
    """The streams of this event loop, which end when the web application does."""
    return _streams.setdefault(asyncio.get_running_loop(), LongPolls())
