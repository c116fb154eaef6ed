"""Keeps the leases of long batches, from a thread of its own.

It has its own event loop and its own connection, so a handler that blocks the worker's loop loses nothing. A batch that
is over within a second (or a quarter of its lease) is never looked at.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from accoda.errors import LeaseLost, StorageError
from accoda.model import Job, Lease, Outcome, Retry, Why
from accoda.retry import describe
from accoda.runtime.batch import BatchRun
from accoda.storage.common.lease_durability import hold_here
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store

log = logging.getLogger("accoda.leases")

BEAT = 1.0
"""Seconds between two looks: a job that was cancelled learns of it within about that time."""
PATIENCE = 5.0
"""Seconds for one call of the store; then the connection is taken for dead and made anew."""
LONGEST_PAUSE = 2.0
LOST = "the lease was lost: the job was removed or replaced, or given to another worker"
CANCELLED = "the job was cancelled"


def beat(lease: float) -> float:
    """How long to sleep between two looks at leases of this length."""
    return min(BEAT, lease / 4)


def is_due(batch: BatchRun, now: float) -> bool:
    """Whether its leases are to be extended: each second or each quarter of the lease, until they are left to end."""
    if not batch.owner.renew:
        return False
    if batch.leases_end_at is not None and now >= batch.leases_end_at:
        return False
    # A bit early rather than a whole beat late: the sleep may be shorter than asked by a hair.
    return now - batch.extended_at >= 0.9 * beat(batch.lease)


def is_over(batch: BatchRun, now: float) -> bool:
    """Whether its leases have ended because its handler has `renew=False`.

    They began when the store took the jobs, which is before `extended_at`: at this moment they are over by the store's
    clock too. A batch that has not begun is left alone, since there is nothing to stop yet.
    """
    return not batch.owner.renew and batch.began > 0 and now - batch.extended_at >= batch.lease


class LeaseHeartbeat:
    """Extends the leases of a worker's batches.

    `batches` is the worker's own set of those that are not settled; it changes on the worker's `loop` and is only
    copied here, in one atomic step. `shortest` tells the shortest lease of its queues, which sets the pace.
    `open_store` and `close_store` are called on this thread's own loop, the first when a batch first needs it.
    `on_lost` is called on the worker's loop, with leases that were lost while their jobs ran.
    """

    def __init__(
        self,
        batches: set[BatchRun],
        shortest: Callable[[], float],
        open_store: Callable[[], Awaitable[Store]],
        close_store: Callable[[Store], Awaitable[None]],
        on_lost: Callable[[list[Lease]], None] = lambda leases: None,
    ) -> None:
        self._batches = batches
        self._shortest = shortest
        self._open_store = open_store
        self._close_store = close_store
        self._on_lost = on_lost
        self._worker_loop = asyncio.get_running_loop()
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
            self._thread = threading.Thread(target=self._run, name="accoda-leases", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Let the leases be, and end the thread. A second call does nothing."""
        self._closing = True
        self.wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def wake(self) -> None:
        """Look now: the shortest lease has become shorter."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake.set)

    def release_all(self, reason: str, timeout: float) -> bool:
        """Settle all batches: what was said of a job counts, the others go back at once with `reason`.

        For any thread, also while the worker's loop is blocked. False: it was not done within `timeout` seconds.
        """
        if not self._batches:
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

    # -- in this thread

    async def run_once(self, now: float) -> None:
        """Extend what is due at the moment `now`: one call for all leases of the same length."""
        due: dict[float, list[BatchRun]] = {}
        for batch in self._batches.copy():
            if is_due(batch, now):
                due.setdefault(batch.lease, []).append(batch)
            elif is_over(batch, now):
                self._tell(batch, {job.id: "lost" for job in batch.unsettled()})
        if now >= self._retry_at:
            for lease, batches in due.items():
                await self._extend(batches, lease, now)

    async def _extend(self, batches: list[BatchRun], lease: float, now: float) -> None:
        # By the whole lease: a worker may hold a lost lease of a job beside the one with which it took the job again.
        held = {job.lease: batch for batch in batches for job in batch.unsettled()}
        lost: dict[BatchRun, dict[int, Why]] = {}
        if held:
            try:
                async with asyncio.timeout(PATIENCE):
                    store = await self._opened()
                    refused = await store.extend(list(held), lease)
            except Exception as error:
                await self._trouble(error, now)
                return
            for refusal in refused:
                lost.setdefault(held[refusal.lease], {})[refusal.lease.id] = refusal.why
        self._backoff.reset()
        for batch in batches:
            batch.extended_at = now
        for batch, whys in lost.items():
            self._tell(batch, whys)

    def _tell(self, batch: BatchRun, whys: dict[int, Why]) -> None:
        # A batch may be settled while its leases are being extended: then they are refused, but nothing is lost.
        whys = {id: why for id, why in whys.items() if id not in batch.settled}
        if not whys or batch not in self._batches:
            return
        # A new set instead of an addition: a thread that iterates over the old one is not disturbed.
        batch.lost = batch.lost | whys.keys()
        self._call(self._stop, batch, whys)

    def _stop(self, batch: BatchRun, whys: dict[int, Why]) -> None:
        """On the worker's loop, where batches are settled: by now this one may be."""
        if batch not in self._batches:
            return
        cancelled = {id for id, why in whys.items() if why == "cancelled"}
        ids = whys.keys() - cancelled
        for some, reason in ((cancelled, CANCELLED), (ids, LOST)):
            if some:
                batch.owner.runner.stop(batch, some, LeaseLost(reason))
        # An outcome that is on its way may be what ended the lease: the store's answer will tell. If none is on its way
        # now, none was when `extend` was refused, but for those that have been answered since.
        answered = {*batch.settled, *batch.settling}
        self._on_lost([job.lease for job in batch.taken if job.id in ids and job.id not in answered])

    async def _release(self, reason: str) -> None:
        while True:
            batches = self._batches.copy()
            outcomes = [_outcome(batch, job, reason) for batch in batches for job in batch.unsettled()]
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
            for batch in batches:
                ids = {job.id for job in batch.unsettled()}
                batch.lost = batch.lost | ids
                self._call(batch.owner.runner.stop, batch, ids, LeaseLost(LOST))
            return

    def _run(self) -> None:
        assert self._loop is not None
        loop = self._loop
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        hold_here()
        try:
            while not self._closing:
                self._wake.clear()
                # It looks once in a beat, whether there are batches or not: so a batch need not wake this thread, which
                # would cost a job that comes to an idle worker more than its own run.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), beat(self._shortest()))
                if self._batches:
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
                log.debug("closing the connection of the lease heartbeat failed: %s", describe(error))

    def _call(self, function: Callable[..., Any], *args: Any) -> None:
        with suppress(RuntimeError):  # the worker's loop is closed
            self._worker_loop.call_soon_threadsafe(function, *args)


def _outcome(batch: BatchRun, job: Job, reason: str) -> Outcome:
    if job.id in batch.results:
        try:
            return batch.decide(job)
        except Exception as error:  # what a handler asked for cannot be done: it goes back with the reason
            reason = describe(error)
    return Retry(job.lease, reason=reason, counts=False)
