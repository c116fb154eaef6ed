"""The calls that one process has taken: which of them run, which wait for their host, and which go back to the queue.

A slow receiver must not hold up the others, so only a few calls to one host run at once. A call whose host is busy
waits here for a short time; if too many wait already, it goes back to the queue, so that the calls behind it are taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct

from accoda.errors import InvalidInput, StorageError
from accoda.model import Job, Outcome, Retry
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store
from accoda.webhooks.call import QUEUE, Call
from accoda.webhooks.guard import Policy, Resolve

log = logging.getLogger("accoda.webhooks")

RENEWALS = 3
"""How often a lease is renewed in its time."""
LONGEST_PAUSE = 60.0
CLOSE_TIMEOUT = 5.0
"""Seconds that `close` waits for a store that does not answer. The leases end by themselves as well."""


class DispatchLimits(Struct, frozen=True, kw_only=True):
    """How many calls run at once, in all and to one host, and how many may wait: for one host, and taken altogether."""

    at_once: int = 20
    per_host: int = 4
    waiting: int = 16
    taken: int = 100
    lease: float = 60.0


class SenderOptions(Struct, frozen=True, kw_only=True):
    """How calls are made.

    `policy`: what is allowed that is not public (None: what ACCODA_WEBHOOK_ALLOW says). `connect` and `total` are
    seconds. `resolve` replaces the system's resolver, `tls` its trusted certificates.
    """

    limits: DispatchLimits = DispatchLimits()
    connect: float = 5.0
    total: float = 15.0
    policy: Policy | None = None
    resolve: Resolve | None = None
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if not 0 < self.connect <= self.total < self.limits.lease / 2:
            raise InvalidInput("total", "must be at least `connect`, and less than half of the lease")


class TakenCall(Struct, eq=False):
    """A call that this process has leased. `sending` is False as soon as its outcome is known."""

    job: Job
    call: Call
    host: str
    sending: bool = True


Send = Callable[[TakenCall], Awaitable[Outcome]]


class Dispatcher:
    """Takes calls and lets `send` make them. Its owner calls `take` and `start` in turn, and `close` once."""

    def __init__(self, store: Store, limits: DispatchLimits, send: Send) -> None:
        self._store = store
        self._limits = limits
        self._send = send
        self._running: dict[asyncio.Task[None], TakenCall] = {}
        self._busy: dict[str, int] = {}
        self._waiting: dict[str, deque[TakenCall]] = {}
        self._freed = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self.settled = 0

    @property
    def free(self) -> int:
        """How many more calls may be taken now."""
        running, waiting = len(self._running), sum(map(len, self._waiting.values()))
        return max(0, min(self._limits.at_once - running, self._limits.taken - running - waiting))

    @property
    def busy(self) -> bool:
        return bool(self._running)

    async def take(self) -> list[Job]:
        """Take as many calls as are free.

        If it is cancelled meanwhile, it waits for the answer and gives the calls back; otherwise they could not be made
        before their leases end.
        """
        taking = asyncio.ensure_future(self._store.take(QUEUE, self.free, lease=self._limits.lease, worker="webhooks"))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with contextlib.suppress(StorageError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._give_back(await taking)
            raise

    async def start(self, calls: Sequence[TakenCall]) -> None:
        """Start each call, or let it wait for its host, or give it back for later."""
        self._renewing = self._renewing or asyncio.create_task(self._renew(), name="accoda-webhooks-leases")
        too_many: list[Outcome] = []
        for call in calls:
            if self._busy.get(call.host, 0) < self._limits.per_host:
                self._start(call)
            elif len(self._waiting.get(call.host, ())) < self._limits.waiting:
                self._waiting.setdefault(call.host, deque()).append(call)
            else:
                too_many.append(_unsent(call.job, "many calls to its host are under way", _pause(call.job)))
        if too_many:
            await self._store.settle(too_many)

    async def freed(self) -> None:
        """Wait until a running call has ended."""
        self._freed.clear()
        await self._freed.wait()

    async def idle(self) -> None:
        """Wait until no call is running or waiting."""
        while self._running:
            await asyncio.wait(list(self._running))

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Settle, retrying while the store is away until the lease would have ended."""
        backoff = Backoff(0.1, 5.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.lease):
                while True:
                    try:
                        refused = await self._store.settle(outcomes)
                        self.settled += len(outcomes) - len(refused)
                        return
                    except StorageError as error:
                        log.warning("cannot settle a call, trying again soon: %s", error)
                        await backoff.nap()

    async def close(self) -> None:
        """Stop. Calls whose outcome is known are settled; all others go back at once, for another process."""
        unsent = [call.job for line in self._waiting.values() for call in line]
        self._waiting.clear()
        if self._renewing is not None:
            self._renewing.cancel()
        for task, call in self._running.items():
            if call.sending:
                unsent.append(call.job)
                task.cancel()
        if self._running:
            _, late = await asyncio.wait(list(self._running), timeout=CLOSE_TIMEOUT)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._renewing is not None:
            await asyncio.gather(self._renewing, return_exceptions=True)
        with contextlib.suppress(StorageError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._give_back(unsent)

    def _start(self, call: TakenCall) -> None:
        self._busy[call.host] = self._busy.get(call.host, 0) + 1
        task = asyncio.create_task(self._run(call), name=f"accoda-webhook-{call.job.id}")
        self._running[task] = call
        task.add_done_callback(self._ended)

    async def _run(self, call: TakenCall) -> None:
        try:
            outcome = await self._send(call)
        except StorageError as error:
            log.warning("call %d goes back: %s", call.job.id, error)
            with contextlib.suppress(StorageError):
                await self._store.settle([_unsent(call.job, str(error), _pause(call.job))])
            return
        # From here on `close` does not cancel it: the receiver has the message, and the store should know.
        call.sending = False
        await self.settle([outcome])

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Start the next call that waits for the same host."""
        call = self._running.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("call %d failed unexpectedly", call.job.id, exc_info=error)
        waiting = self._waiting.get(call.host)
        self._busy[call.host] -= 1
        if waiting:
            self._start(waiting.popleft())
        if not waiting:
            self._waiting.pop(call.host, None)
        if not self._busy[call.host]:
            del self._busy[call.host]
        self._freed.set()

    async def _renew(self) -> None:
        """Renew the leases of calls that wait or are being settled; sending takes far less than a lease."""
        while True:
            await asyncio.sleep(self._limits.lease / RENEWALS)
            waiting = [call for line in self._waiting.values() for call in line]
            leases = [call.job.lease for call in (*waiting, *self._running.values())]
            try:
                refused = await self._store.extend(leases, self._limits.lease) if leases else []
            except StorageError as error:
                log.warning("cannot renew the leases of calls: %s", error)
                continue
            lost = {one.lease.id for one in refused}  # removed, or replaced by a redelivery
            for host, line in self._waiting.items():
                self._waiting[host] = deque(call for call in line if call.job.id not in lost)

    async def _give_back(self, jobs: Iterable[Job]) -> None:
        if outcomes := [_unsent(job, "its worker stopped") for job in jobs]:
            await self._store.settle(outcomes)


def _unsent(job: Job, why: str, delay: float = 0.0) -> Retry:
    """A call goes back that was not sent. The receiver had no part in it, so it does not count as a try."""
    return Retry(job.lease, delay=delay, reason=f"not sent: {why}", counts=False)


def _pause(job: Job) -> float:
    """Seconds until a call that was given back is taken again: longer each time, so that a long line for one host does
    not circulate all the time."""
    returns = job.attempts - job.tries
    return random.uniform(0.5, 1.0) * min(LONGEST_PAUSE, 2.0 ** (1 + min(returns, 8)))
