"""The calls that one process has in hand: which of them run, which wait for their turn, and which go back.

A receiver that is slow must not hold up the others, so a host has a few hands at most. What was taken for a host whose
hands are busy waits here for a little; what would wait for long goes back to the queue, so that the calls behind it
come to their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from accoda.errors import StorageError
from accoda.model import Job, Lease, Outcome
from accoda.storage.backoff import Backoff
from accoda.storage.protocol import Store
from accoda.webhooks.records import QUEUE, Call

log = logging.getLogger("accoda.webhooks")

AT_ONCE = 0.001
"""The shortest lease: the job comes back by itself, at once."""
RENEWALS = 3
"""How often a lease is renewed in its time."""
LONGEST_ASIDE = 60.0
FAREWELL = 5.0
"""Seconds that the end of a shift waits for a store that does not answer; the leases end by themselves too."""


class Room(Struct, frozen=True, kw_only=True):
    """How many calls run at once, in all and to one host; how many may wait for a host, and be in hand altogether."""

    at_once: int = 20
    per_host: int = 4
    waiting: int = 16
    in_hand: int = 100
    lease: float = 60.0


class Errand(Struct, eq=False):
    """A call in hand. `sending` is False as soon as its outcome is known."""

    job: Job
    call: Call
    host: str
    sending: bool = True


Do = Callable[[Errand], Awaitable[Outcome]]


class Shift:
    """Takes calls and lets `do` make them. Its owner calls `fill` again and again, and `end` once."""

    def __init__(self, store: Store, room: Room, do: Do) -> None:
        self._store = store
        self._room = room
        self._do = do
        self._running: dict[asyncio.Task[None], Errand] = {}
        self._busy: dict[str, int] = {}
        self._waiting: dict[str, deque[Errand]] = {}
        self._freed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.settled = 0

    @property
    def room(self) -> int:
        """How many calls more may be taken now."""
        waiting = sum(map(len, self._waiting.values()))
        running = len(self._running)
        return max(0, min(self._room.at_once - running, self._room.in_hand - running - waiting))

    @property
    def busy(self) -> bool:
        """Whether any call is in hand."""
        return bool(self._running)

    async def take(self) -> list[Job]:
        """As many calls as there is room for.

        If the shift is cancelled meanwhile, the answer is waited for and what it brought goes back: a take that was
        let go of would keep calls out of reach until their leases end.
        """
        taking = asyncio.ensure_future(self._store.take(QUEUE, self.room, lease=self._room.lease, worker="webhooks"))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with contextlib.suppress(StorageError, TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._give_back([job.lease for job in await taking], AT_ONCE)
            raise

    async def begin(self, errands: Sequence[Errand]) -> None:
        """Start each, or let it wait for its host, or put it aside for later."""
        self._keeper = self._keeper or asyncio.create_task(self._keep(), name="accoda-webhooks-keeper")
        aside: list[Errand] = []
        for errand in errands:
            line = self._waiting.get(errand.host)
            if self._busy.get(errand.host, 0) < self._room.per_host:
                self._start(errand)
            elif line is None or len(line) < self._room.waiting:
                self._waiting.setdefault(errand.host, deque()).append(errand)
            else:
                aside.append(errand)
        for errand in aside:
            await self._give_back([errand.job.lease], _aside_for(errand.job.crashes))

    async def freed(self) -> None:
        """Wait until a call in hand has been settled."""
        self._freed.clear()
        await self._freed.wait()

    async def idle(self) -> None:
        """Wait until nothing is in hand."""
        while self._running:
            await asyncio.wait(list(self._running))

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Tell the store, however long it is away: until the lease is over there is somebody to listen."""
        trouble = Backoff(0.1, 5.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._room.lease):
                while True:
                    try:
                        refused = await self._store.settle(outcomes)
                        self.settled += len(outcomes) - len(refused)
                        return
                    except StorageError as error:
                        log.warning("cannot settle a call, trying again soon: %s", error)
                        await trouble.nap()

    async def end(self) -> None:
        """Stop. Who has his outcome already may settle it; every other call goes back at once, for another process."""
        back = [errand.job.lease for line in self._waiting.values() for errand in line]
        self._waiting.clear()
        if self._keeper is not None:
            self._keeper.cancel()
        for task, errand in self._running.items():
            if errand.sending:
                back.append(errand.job.lease)
                task.cancel()
        if self._running:
            _, late = await asyncio.wait(list(self._running), timeout=FAREWELL)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._keeper is not None:
            await asyncio.gather(self._keeper, return_exceptions=True)
        with contextlib.suppress(StorageError, TimeoutError):  # the leases end by themselves as well
            async with asyncio.timeout(FAREWELL):
                await self._give_back(back, AT_ONCE)

    def _start(self, errand: Errand) -> None:
        self._busy[errand.host] = self._busy.get(errand.host, 0) + 1
        task = asyncio.create_task(self._run(errand), name=f"accoda-webhook-{errand.job.id}")
        self._running[task] = errand
        task.add_done_callback(self._ended)

    async def _run(self, errand: Errand) -> None:
        try:
            outcome = await self._do(errand)
        except StorageError as error:
            log.warning("call %d goes back: %s", errand.job.id, error)
            with contextlib.suppress(StorageError):
                await self._give_back([errand.job.lease], _aside_for(errand.job.crashes))
            return
        # From here on `end` lets it be: the receiver has the message, and the store should know.
        errand.sending = False
        await self.settle([outcome])

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A hand is free: the next that waits for the same host has it."""
        errand = self._running.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("call %d failed in a way nobody thought of", errand.job.id, exc_info=error)
        line = self._waiting.get(errand.host)
        self._busy[errand.host] -= 1
        if line:
            self._start(line.popleft())
        if not line:
            self._waiting.pop(errand.host, None)
        if not self._busy[errand.host]:
            del self._busy[errand.host]
        self._freed.set()

    async def _keep(self) -> None:
        """Renew the leases of those who wait and of those who settle: a call itself is over long before its lease."""
        while True:
            await asyncio.sleep(self._room.lease / RENEWALS)
            waiting = [errand for line in self._waiting.values() for errand in line]
            leases = [errand.job.lease for errand in (*waiting, *self._running.values())]
            try:
                lost = {one.lease.id for one in await self._store.extend(leases, self._room.lease)} if leases else set()
            except StorageError as error:
                log.warning("cannot renew the leases of calls: %s", error)
                continue
            for host, line in self._waiting.items():  # removed, or sent again by somebody: no longer ours
                self._waiting[host] = deque(errand for errand in line if errand.job.id not in lost)

    async def _give_back(self, leases: Sequence[Lease], seconds: float) -> None:
        """Let leases end soon. Not a `Retry`, which would count as a try of the call and overwrite its last reason."""
        if leases:
            await self._store.extend(leases, seconds)


def _aside_for(crashes: int) -> float:
    """Seconds: longer each time, so that a long line for one host does not go round and round."""
    return random.uniform(0.5, 1.0) * min(LONGEST_ASIDE, 2.0 ** (1 + min(crashes, 8)))
