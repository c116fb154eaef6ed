"""Tells other processes that a queue has something new, and hears it from them: LISTEN and NOTIFY.

A notification is a hint. Whoever waits looks at the tables first, looks again after every notification and reconnect,
and at least every few seconds without any; so a lost one costs seconds, never a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Collection, Iterable

from accoda.errors import AccodaError, StorageClosed
from accoda.model import NewJob
from accoda.storage.backoff import Backoff
from accoda.storage.postgres.client import Client
from accoda.storage.postgres.connector import Connection, close, terminate
from accoda.storage.postgres.errors import DRIVER
from accoda.storage.signal import Signal

_FILLED = "+"  # before the queue's name: a job is ready there, no need to look first. No name begins so.
_QUIET = 0.02  # seconds without news after which an enqueue sends its own by its commit
_PAUSE = 0.002  # seconds between two notifications of one process: what comes meanwhile is told together
_LAST_WORDS = 1.0  # seconds for news that is still to be told at a close
_FIRST_NAP, _LONGEST_NAP = 0.05, 2.0
_PING_EACH = 30.0  # seconds without a word after which the listening connection is asked whether it is there still
_PING_PATIENCE = 10.0


class Bell:
    """One listening connection, made when somebody first waits, and one teller. Both live in the client's loop."""

    def __init__(self, client: Client, signal: Signal) -> None:
        self.filled: Counter[str] = Counter()  # how often it was heard of each queue that a job became ready
        self.changed: Counter[str] = Counter()  # how often anything was heard of it
        self._client = client
        self._signal = signal
        self._news: set[str] = set()
        self._told = 0.0
        self._telling: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._listens = asyncio.Event()

    def tell(self, news: Collection[str], *, sent: bool = False) -> None:
        """Wake who waits in this process at once, and those in others by a notification, unless it is `sent`.

        It is sent after the commit, by a transaction of its own that does not wait for the disk: PostgreSQL commits
        transactions that notify one at a time, so an enqueue that did it itself would wait for all the others.
        """
        if not news:
            return
        self._heed(news)
        if sent:
            return
        if asyncio.get_running_loop() is self._client.loop:
            self._add(news)
        else:
            self._client.loop.call_soon_threadsafe(self._add, news)

    def is_quiet(self) -> bool:
        """Whether it is long since this process told something; then a commit may well do it, which is sooner."""
        now = time.monotonic()
        quiet = self._telling is None and now - self._told > _QUIET
        if quiet:
            self._told = now
        return quiet

    async def listen(self) -> None:
        """Return when notifications are heard, or when it is clear that they are not for now."""
        self._client.check()
        if self._listens.is_set():
            return
        await self._client.at_home(self._begin)

    async def close(self) -> None:
        """Tell what is still to be told, and stop listening. The client is closed already, so neither begins again."""
        if self._telling is not None:
            await asyncio.wait({self._telling}, timeout=_LAST_WORDS)
        tasks = [task for task in (self._telling, self._listening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listens.set()  # who waits for it finds the storage closed

    # -- telling

    def _add(self, news: Collection[str]) -> None:
        self._news.update(news)
        if self._telling is None and not self._client.closed:
            self._telling = self._client.loop.create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._news:
                news, self._news = sorted(self._news), set()
                self._told = time.monotonic()
                # An error is dropped: those who wait look by themselves before long.
                with contextlib.suppress(AccodaError):
                    await self._client.send("ring", (news,), repeat=True)
                await asyncio.sleep(_PAUSE)
        finally:
            self._telling = None

    # -- listening

    async def _begin(self) -> None:
        self._client.check()  # again, in the client's loop: a close may have come first
        if self._listening is None:
            self._listening = self._client.loop.create_task(self._listen())
        await self._listens.wait()

    async def _listen(self) -> None:
        backoff = Backoff(_FIRST_NAP, _LONGEST_NAP)
        while not self._client.closed:
            try:
                await self._listen_once(backoff)
            except StorageClosed:
                return
            except DRIVER:
                self._listens.set()  # nobody should wait for a server that is away: they look from time to time
            await backoff.nap()

    async def _listen_once(self, backoff: Backoff) -> None:
        connection = await self._client.connect()
        try:
            gone = asyncio.Event()
            connection.add_termination_listener(lambda _: gone.set())
            await connection.add_listener(self._client.schema, self._hear)
            backoff.reset()
            self._listens.set()
            self._signal.ring()  # whatever was told while nobody listened
            while not gone.is_set():
                await _ping(connection, gone)
        finally:
            await close(connection)

    def _hear(self, connection: Connection, process: int, channel: str, news: object) -> None:
        # As `_heed`, for one: it is on the way of a job to an idle worker.
        said = str(news)
        queue = said.removeprefix(_FILLED)
        if queue is not said:
            self.filled[queue] += 1
        self.changed[queue] += 1
        self._signal.ring((queue,))

    def _heed(self, news: Collection[str]) -> None:
        self.filled.update(each.removeprefix(_FILLED) for each in news if each.startswith(_FILLED))
        queues = {each.removeprefix(_FILLED) for each in news}
        self.changed.update(queues)
        self._signal.ring(queues)


async def _ping(connection: Connection, gone: asyncio.Event) -> None:
    """Wait a while for the end of a connection; then ask for a word. One that gives none raises TimeoutError."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PING_EACH):
            await gone.wait()
            return
    try:
        async with asyncio.timeout(_PING_PATIENCE):
            await connection.fetchval("SELECT 1")
    except TimeoutError:
        terminate(connection)  # no goodbye: nobody would answer it
        raise


def news_of_one(job: NewJob) -> str:
    """As `news_of`, for a job that is ready now."""
    return _FILLED + job.queue


def news_of(jobs: Iterable[NewJob]) -> set[str]:
    """What to tell of new jobs: `+queue` where one is ready now, `queue` where there is a new moment to wake at."""
    jobs = list(jobs)
    now = {job.queue for job in jobs if not job.delay and job.start_at is None}
    return {_FILLED + queue for queue in now} | {job.queue for job in jobs}.difference(now)
