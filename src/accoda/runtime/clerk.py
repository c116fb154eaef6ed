"""Does the house's own jobs beside the handlers': ticks of schedules, calls of webhooks, replays of dead letters,
bulk changes, rounds of the history.

Each kind is a duty with a loop of its own, over a system queue. Every worker has a clerk and so has the HTTP service;
however many there are, a job is done by one of them, as with any queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from accoda.errors import MissingDriver, StorageError
from accoda.storage.backoff import Backoff
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App

AGAIN = 5.0
"""Seconds until a duty that failed is taken up again."""

log = logging.getLogger("accoda.clerk")


class Duty(Protocol):
    """The jobs of one system queue. `run` may be cancelled at any moment, and loses nothing by it."""

    queue: str

    async def run_once(self, store: Store) -> int:
        """Do what is due now; the number of jobs that were settled."""
        ...

    async def run(self, store: Store) -> None:
        """Do what comes due, for ever."""
        ...


class Clerk:
    """Runs duties over an app's store. May be started and closed twice without harm."""

    def __init__(self, app: App, duties: Sequence[Duty] | None = None) -> None:
        self._app = app
        self._store = app.storage
        self._duties = duties_of(app) if duties is None else duties
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin, on the running event loop."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._do(duty), name=f"accoda-{duty.queue}") for duty in self._duties]
            if self._app.schedules or self._app.handlers:
                self._tasks.append(asyncio.create_task(self._store_declared(), name="accoda-declared"))

    async def close(self) -> None:
        """Leave off. What is in hand goes back."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self) -> None:
        """Work until cancelled."""
        self.start()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.close()

    async def _do(self, duty: Duty) -> None:
        while True:
            try:
                await duty.run(self._store)
            except Exception:  # a mistake of ours: the other duties, and later this one, must go on
                log.exception("the duty of %s failed; it goes on in %g s", duty.queue, AGAIN)
            await asyncio.sleep(AGAIN)

    async def _store_declared(self) -> None:
        """Store the schedules that the code declares, as soon as the store answers; those that people made for its
        queues are told what its handlers say."""
        from accoda.schedules import store_declared

        trouble = Backoff(0.2, 5.0)
        while True:
            try:
                return await store_declared(self._app, self._store)
            except StorageError as error:
                log.warning("cannot store the declared schedules, trying again soon: %s", error)
                await trouble.nap()


async def run_ticks(app: App) -> int:
    """Do the ticks of an app's schedules that are due, for `run_until_idle`; their number."""
    from accoda.schedules import Scheduler, maker_of, store_declared

    store = await app.connections.get()
    await store_declared(app, store)
    return await Scheduler(maker_of(app)).run_once(store)


def duties_of(app: App) -> list[Duty]:
    """The duties that this installation is able to do: what needs an extra that is missing is left to others."""
    from accoda.bulk import Bulker
    from accoda.replays import Replayer
    from accoda.runtime.measuring import recorder
    from accoda.schedules import Scheduler, maker_of
    from accoda.webhooks import Caller

    duties: list[Duty] = []
    kinds: tuple[Callable[[], Duty], ...] = (
        lambda: Scheduler(maker_of(app)),
        Replayer,
        lambda: Bulker(app),
        lambda: recorder(app),
        Caller,
    )
    for kind in kinds:
        try:
            duties.append(kind())
        except MissingDriver as error:
            log.info("left to other processes: %s", error)
    return duties
