"""Makes the calls: the duty of the queue `accoda.webhooks`."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.clock import Clock, SystemClock
from accoda.errors import InvalidInput, StorageError
from accoda.model import Bury, Job, Outcome
from accoda.retry import describe
from accoda.storage.backoff import Backoff
from accoda.storage.protocol import Store
from accoda.webhooks.body import body
from accoda.webhooks.call import read_call
from accoda.webhooks.decide import NoAnswer, decide
from accoda.webhooks.extra import need_extra
from accoda.webhooks.guard import Policy, Resolve
from accoda.webhooks.keys import Keys, headers, show
from accoda.webhooks.records import QUEUE
from accoda.webhooks.shift import Errand, Room, Shift
from accoda.webhooks.urls import read_url

if TYPE_CHECKING:
    from accoda.webhooks.sender import Sender

log = logging.getLogger("accoda.webhooks")

KEYS_FOR = 10_000
"""Milliseconds for which keys are not read again. Harmless: an old key is good for a day after a rotation."""
WAIT = 30.0


class CallerOptions(Struct, frozen=True, kw_only=True):
    """How calls are made.

    `policy`: what is allowed that is not public (None: what ACCODA_WEBHOOK_ALLOW says). `connect` and `total` are
    seconds. `resolve` stands in for the resolver of this machine, `tls` for its trusted certificates.
    """

    room: Room = Room()
    connect: float = 5.0
    total: float = 15.0
    policy: Policy | None = None
    resolve: Resolve | None = None
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if not 0 < self.connect <= self.total < self.room.lease / 2:
            raise InvalidInput("total", "must be at least `connect`, and less than half of the lease")


class Line:
    """The way out: opened by the first call, closed when there are none. A process that makes no calls, as most do,
    pays nothing for it: neither the import of aiohttp nor a session."""

    def __init__(self, options: CallerOptions, policy: Policy) -> None:
        self._options = options
        self._policy = policy
        self._sender: Sender | None = None

    async def open(self) -> Sender:
        """The sender, one for all calls."""
        if self._sender is None:
            # In a thread: the import takes a good part of a second, and handlers may be at work on this loop.
            await asyncio.to_thread(import_module, "accoda.webhooks.sender")
        if self._sender is None:  # still: other calls came here too while this one waited
            from accoda.webhooks.sender import Limits, Sender

            chosen = self._options
            limits = Limits(connect=chosen.connect, total=chosen.total)
            threads = chosen.room.at_once
            self._sender = Sender(self._policy, limits, resolve=chosen.resolve, tls=chosen.tls, threads=threads)
        return self._sender

    async def close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()


class Caller:
    """A duty. Any number of processes may have one: each call is made by one of them at a time."""

    queue = QUEUE

    def __init__(self, options: CallerOptions | None = None, clock: Clock | None = None) -> None:
        need_extra()
        self._options = options or CallerOptions()
        self._policy = self._options.policy or Policy.of_environment()
        self._clock = clock or SystemClock()
        self._keys: Keys | None = None
        self._keys_at = 0

    async def run_once(self, store: Store) -> int:
        """Make the calls that are due, as many as there are hands; the number that was settled."""
        async with self._shift(store) as (shift, _):
            await self._fill(shift)
            await shift.idle()
        return shift.settled

    async def run(self, store: Store) -> None:
        """Make calls as they come due, for ever: whenever a hand is free, the next is taken."""
        trouble = Backoff(0.1, 5.0)
        async with self._shift(store) as (shift, line):
            while True:
                try:
                    if not shift.room:
                        await shift.freed()
                    elif not await self._fill(shift) and not await store.wait([QUEUE], WAIT) and not shift.busy:
                        # Nothing for a while. Only this loop begins calls, so none begins while the line is closed.
                        await line.close()
                    trouble.reset()
                except StorageError as error:
                    log.warning("cannot take calls, trying again soon: %s", error)
                    await trouble.nap()

    @asynccontextmanager
    async def _shift(self, store: Store) -> AsyncIterator[tuple[Shift, Line]]:
        """At its end nothing is left in hand, and every connection is closed."""
        line = Line(self._options, self._policy)
        shift = Shift(store, self._options.room, lambda errand: self._call(store, line, errand))
        try:
            yield shift, line
        finally:
            await shift.end()
            await line.close()

    async def _fill(self, shift: Shift) -> int:
        jobs = await shift.take()
        errands, unreadable = _sort(jobs)
        if unreadable:
            await shift.settle(unreadable)
        if errands:
            await shift.begin(errands)
        return len(jobs)

    async def _call(self, store: Store, line: Line, errand: Errand) -> Outcome:
        """One try: sign, send, decide."""
        job, call = errand.job, errand.call
        keys = await self._read_keys(store)
        try:
            sender = await line.open()
            content = body(call, job.created_at)
            attempt = await sender.send(call.url, content, headers(keys, call.message, content, self._clock.now()))
        except Exception as error:  # a mistake of ours: it counts as a try, so that it does not go on for ever
            log.exception("call %d failed in a way nobody thought of", job.id)
            attempt = NoAnswer(f"not sent: {describe(error)}")
        outcome = decide(job, attempt, self._clock.now())
        log.debug("call %d of %s to %s: %s", job.id, call.message, errand.host, type(outcome).__name__)
        return outcome

    async def _read_keys(self, store: Store) -> Keys:
        now = self._clock.now()
        if self._keys is None or not 0 <= now - self._keys_at < KEYS_FOR:
            self._keys, self._keys_at = await show(store, now), now
        return self._keys


def _sort(jobs: Sequence[Job]) -> tuple[list[Errand], list[Outcome]]:
    """The calls among the jobs, each with its host, and the end of what is none."""
    errands: list[Errand] = []
    unreadable: list[Outcome] = []
    for job in jobs:
        call = read_call(job.data)
        if call is None:
            unreadable.append(Bury(job.lease, "unreadable call: it was written by a newer Accoda, or damaged"))
            continue
        try:
            errands.append(Errand(job, call, read_url(call.url).host))
        except InvalidInput as error:
            unreadable.append(Bury(job.lease, str(error)))
    return errands, unreadable
