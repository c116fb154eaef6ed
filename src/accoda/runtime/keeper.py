"""The keeper of leases: makes those of long batches last, from a thread of its own.

It has its own event loop and its own connection, so a handler that blocks the worker's loop loses nothing. A batch that
is over within a second (or a quarter of its lease) is never looked at.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from accoda.errors import StorageError
from accoda.model import Outcome, Retry
from accoda.retry import Result, describe
from accoda.runtime.batch import Batch, Running
from accoda.storage.backoff import Backoff
from accoda.storage.holding import held_here
from accoda.storage.protocol import Store

log = logging.getLogger("accoda.keeper")

BEAT = 1.0
"""Seconds between two looks: a job that was cancelled learns of it within about that time."""
PATIENCE = 5.0
"""Seconds for one call of the store; then the connection is taken for dead and made anew."""
LONGEST_PAUSE = 2.0

OnLost = Callable[[Collection[int]], None]
Decide = Callable[[Running[Any], Result], Outcome]


class Held:
    """One batch in hand. `on_lost` is called on the worker's loop with the ids of the jobs whose leases are gone."""

    __slots__ = ("batch", "deadline", "decide", "extended_at", "lease", "on_lost")

    def __init__(self, batch: Batch[Any], lease: float, on_lost: OnLost, decide: Decide) -> None:
        self.batch = batch
        self.lease = lease
        self.on_lost = on_lost
        self.decide = decide
        self.extended_at = time.monotonic()
        """When its leases last began."""
        self.deadline: float | None = None
        """The moment (`time.monotonic`) from which on they are left to end; None: never."""

    def running(self) -> list[Running[Any]]:
        """The jobs whose leases are still ours. Those that are finished but not settled need them as well."""
        batch = self.batch
        return [job for job in batch.jobs if job.job.id not in batch.settled and job.job.id not in batch.lost]


def beat(leases: Iterable[float]) -> float:
    """How long to sleep between two looks at leases of these lengths."""
    return min(BEAT, min(leases, default=math.inf) / 4)


def is_due(held: Held, now: float) -> bool:
    """Whether its leases are to be extended: each second or each quarter of the lease, until its deadline."""
    if held.deadline is not None and now >= held.deadline:
        return False
    # A bit early rather than a whole beat late: the sleep may be shorter than asked by a hair.
    return now - held.extended_at >= 0.9 * beat((held.lease,))


class Keeper:
    """Holds the leases of a worker's batches.

    `open_store` and `close_store` are called on the keeper's own loop, the first when a batch first needs it. `loop` is
    the worker's.
    """

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        close_store: Callable[[Store], Awaitable[None]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._open_store = open_store
        self._close_store = close_store
        self._worker_loop = loop
        self._held: set[Held] = set()
        self._covers = 0.0
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wake = asyncio.Event()
        self._opening = asyncio.Lock()
        self._store: Store | None = None
        self._backoff = Backoff(0.2, LONGEST_PAUSE)
        self._retry_at = 0.0

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        if self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="accoda-keeper", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Let the leases be, and end the thread. A second call does nothing."""
        self._closing = True
        self._ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def hold(self, held: Held) -> None:
        """Keep a batch's leases from now on."""
        self._held.add(held)
        # No system call unless the thread sleeps too long for this lease. It cannot oversleep it: here the batch is
        # entered first and `_covers` read after it; the thread first sets `_covers` so high that everybody rings, and
        # then looks at what is held. So it sees the batch, or we see that it must be woken, or both.
        if held.lease < self._covers:
            self._ring()

    def let_go(self, held: Held) -> None:
        """The batch is settled."""
        self._held.discard(held)

    def release_all(self, reason: str, timeout: float) -> bool:
        """Settle all that is held: what was said of a job counts, the others go back at once with `reason`.

        For any thread, also while the worker's loop is blocked. False: it was not done within `timeout` seconds.
        """
        if not self._held:
            return True
        if self._loop is None:
            return False
        release = self._release(reason)
        try:
            future = asyncio.run_coroutine_threadsafe(release, self._loop)
        except RuntimeError:  # closed
            release.close()
            return False
        try:
            future.result(timeout)
        except (TimeoutError, CancelledError):
            future.cancel()
            return False
        return True

    # -- in the keeper's thread

    async def run_once(self, now: float) -> None:
        """Extend what is due at the moment `now`: one call for all leases of the same length."""
        if now < self._retry_at:
            return
        due: dict[float, list[Held]] = {}
        for held in self._held.copy():  # a copy in one step: the worker's thread adds and removes meanwhile
            if is_due(held, now):
                due.setdefault(held.lease, []).append(held)
        for lease, group in due.items():
            await self._extend(group, lease, now)

    async def _extend(self, group: list[Held], lease: float, now: float) -> None:
        jobs = {job.job.id: (job.job.lease, held) for held in group for job in held.running()}
        lost: dict[Held, set[int]] = {}
        if jobs:
            try:
                async with asyncio.timeout(PATIENCE):
                    store = await self._opened()
                    with held_here():
                        refused = await store.extend([token for token, _ in jobs.values()], lease)
            except Exception as error:
                await self._trouble(error, now)
                return
            for refusal in refused:
                lost.setdefault(jobs[refusal.lease.id][1], set()).add(refusal.lease.id)
        self._backoff.reset()
        for held in group:
            held.extended_at = now
        for held, ids in lost.items():
            self._tell(held, ids)

    def _tell(self, held: Held, ids: set[int]) -> None:
        # A batch may be settled while its leases are being extended: then they are refused, but nothing is lost.
        ids = ids - held.batch.settled
        if not ids or held not in self._held:
            return
        # A new set instead of an addition: whoever iterates over the old one is not disturbed.
        held.batch.lost = held.batch.lost | ids
        self._call(self._tell_there, held, ids)

    def _tell_there(self, held: Held, ids: set[int]) -> None:
        """On the worker's loop, where batches are let go: by now this one may be."""
        if held in self._held:
            held.on_lost(ids)

    async def _release(self, reason: str) -> None:
        while True:
            held = self._held.copy()
            outcomes = [_outcome(one, job, reason) for one in held for job in one.running()]
            try:
                store = await self._opened()
                # The worker may settle some of these jobs at the same moment, and we may have to repeat ours. Neither
                # does harm: the first outcome ends the lease, so every later one for it is refused.
                if outcomes:
                    await store.settle(outcomes)
            except Exception as error:
                await self._trouble(error, time.monotonic())
                await asyncio.sleep(0.1)
                continue
            for one in held:
                ids = {job.job.id for job in one.running()}
                one.batch.lost = one.batch.lost | ids
                self._held.discard(one)
                self._call(one.on_lost, ids)
            return

    def _run(self) -> None:
        assert self._loop is not None
        loop = self._loop
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        try:
            while not self._closing:
                self._wake.clear()
                self._covers = math.inf  # see `hold`
                held = self._held.copy()
                # Also while nothing is held it looks once in a beat: so nobody has to ring for a batch of usual leases,
                # which would cost a job that comes to an idle worker more than its own run.
                pause = beat([one.lease for one in held])
                self._covers = 4 * pause
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)
                if self._held:
                    await self.run_once(time.monotonic())
        finally:
            await self._drop()

    async def _opened(self) -> Store:
        async with self._opening:
            if self._store is None:
                self._store = await self._open_store()
            return self._store

    async def _trouble(self, error: Exception, now: float) -> None:
        pause = self._backoff.next()
        self._retry_at = now + pause
        known = isinstance(error, (StorageError, TimeoutError))
        text = describe(error) if known else "unexpected error"
        log.warning("cannot keep leases, connecting anew in %.1f s: %s", pause, text, exc_info=not known)
        await self._drop()

    async def _drop(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                async with asyncio.timeout(PATIENCE / 2):
                    await self._close_store(store)
            except Exception as error:  # it is given up in any case
                log.debug("closing the keeper's connection failed: %s", describe(error))

    # -- between the threads

    def _ring(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake.set)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the worker's loop is closed: nobody is left to be told
            self._worker_loop.call_soon_threadsafe(function, *args)


def _outcome(held: Held, job: Running[Any], reason: str) -> Outcome:
    result = held.batch.result_of(job)
    if result is not None:
        try:
            return held.decide(job, result)
        except Exception as error:  # what a handler asked for cannot be done: it goes back with the reason
            reason = describe(error)
    return Retry(job.job.lease, reason=reason)
