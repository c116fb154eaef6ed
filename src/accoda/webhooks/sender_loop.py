"""Sends the calls of the system queue `accoda.webhooks`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from accoda.clock import Clock, SystemClock
from accoda.errors import InvalidInput, MissingDriver, StorageError
from accoda.model import Bury, Job, Outcome
from accoda.retry import describe
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Storage, Store
from accoda.times import rfc3339
from accoda.webhooks.call import QUEUE, body, read_call
from accoda.webhooks.decide import Attempt, decide
from accoda.webhooks.dispatcher import Dispatcher, SenderOptions, TakenCall
from accoda.webhooks.guard import Policy
from accoda.webhooks.keys import Keys, headers, show
from accoda.webhooks.urls import read_url

if TYPE_CHECKING:
    from accoda.webhooks.sender import Sender

log = logging.getLogger("accoda.webhooks")

NEEDED = ("aiohttp", "standardwebhooks")
KEYS_FOR = 10_000
"""Milliseconds for which keys are cached. Harmless: an old key is valid for a day after a rotation."""
WAIT = 30.0


class SenderLoop:
    """A system job. Any number of processes may run one: each call is made by one of them at a time."""

    queue = QUEUE

    def __init__(self, options: SenderOptions | None = None, clock: Clock | None = None) -> None:
        if missing := [name for name in NEEDED if find_spec(name) is None]:
            raise MissingDriver(
                f"webhooks need {' and '.join(missing)}, which an extra installs: pip install 'accoda[webhooks]'"
            )
        self._options = options or SenderOptions()
        self._policy = self._options.policy or Policy.of_environment()
        self._clock = clock or SystemClock()
        self._sender: Sender | None = None
        self._keys: Keys | None = None
        self._keys_at = 0

    async def run_once(self, store: Store) -> int:
        """Make the calls that are due, up to the limits; the number that was settled."""
        async with self._dispatcher(store) as dispatcher:
            await self._fill(dispatcher)
            await dispatcher.idle()
        return dispatcher.settled

    async def run(self, store: Store) -> None:
        """Make calls as they come due, until cancelled."""
        backoff = Backoff(0.1, 5.0)
        async with self._dispatcher(store) as dispatcher:
            while True:
                try:
                    if not dispatcher.free:
                        await dispatcher.freed()
                    elif not await self._fill(dispatcher) and not (await store.wait([QUEUE], WAIT) or dispatcher.busy):
                        # Nothing for a while. Only this loop starts calls, so none starts while the session closes.
                        await self._close_sender()
                    backoff.reset()
                except StorageError as error:
                    log.warning("cannot take calls, trying again soon: %s", error)
                    await backoff.nap()

    async def send_test(self, store: Storage, url: str) -> Attempt:
        """Send one test message, signed and checked like any other but stored nowhere, and give what came of it."""
        read_url(url)
        now = self._clock.now()
        content = msgspec.json.encode({"type": "webhook.test", "timestamp": rfc3339(now), "data": {}})
        signed = headers(await self._read_keys(store), f"msg_test_{now}", content, now)
        try:
            return await (await self._open_sender()).send(url, content, signed)
        finally:
            await self._close_sender()

    @asynccontextmanager
    async def _dispatcher(self, store: Store) -> AsyncIterator[Dispatcher]:
        """At its end no call is left in this process, and every connection is closed."""
        dispatcher = Dispatcher(store, self._options.limits, lambda call: self._send(store, call))
        try:
            yield dispatcher
        finally:
            await dispatcher.close()
            await self._close_sender()

    async def _fill(self, dispatcher: Dispatcher) -> int:
        jobs = await dispatcher.take()
        calls, unreadable = _sort(jobs)
        if unreadable:
            await dispatcher.settle(unreadable)
        if calls:
            await dispatcher.start(calls)
        return len(jobs)

    async def _send(self, store: Store, taken: TakenCall) -> Outcome:
        """One try: sign, send, decide."""
        job, call = taken.job, taken.call
        keys = await self._read_keys(store)
        try:
            sender = await self._open_sender()
            content = body(call, job.created_at)
            attempt = await sender.send(call.url, content, headers(keys, call.message, content, self._clock.now()))
        except Exception as error:  # a bug of ours: it counts as a try, so that it does not go on for ever
            log.exception("call %d failed unexpectedly", job.id)
            attempt = Attempt(reason=f"not sent: {describe(error)}")
        outcome = decide(job, attempt, self._clock.now())
        log.debug("call %d of %s to %s: %s", job.id, call.message, taken.host, type(outcome).__name__)
        return outcome

    async def _open_sender(self) -> Sender:
        """The sender for all calls, opened by the first: most processes make none and should not import aiohttp."""
        if self._sender is None:
            # In a thread: the import takes a good part of a second, and handlers may be running on this loop.
            await asyncio.to_thread(import_module, "accoda.webhooks.sender")
        if self._sender is None:  # still: other calls may have opened it meanwhile
            from accoda.webhooks.sender import Sender

            self._sender = Sender(self._policy, self._options)
        return self._sender

    async def _close_sender(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()

    async def _read_keys(self, store: Storage) -> Keys:
        now = self._clock.now()
        if self._keys is None or not 0 <= now - self._keys_at < KEYS_FOR:
            self._keys, self._keys_at = await show(store, now), now
        return self._keys


def _sort(jobs: Sequence[Job]) -> tuple[list[TakenCall], list[Outcome]]:
    """The readable calls with their hosts, and the burials of the others."""
    calls: list[TakenCall] = []
    unreadable: list[Outcome] = []
    for job in jobs:
        call = read_call(job.data)
        if call is None:
            unreadable.append(Bury(job.lease, "unreadable call: it was written by a newer Accoda, or damaged"))
            continue
        try:
            calls.append(TakenCall(job, call, read_url(call.url).host))
        except InvalidInput as error:
            unreadable.append(Bury(job.lease, str(error)))
    return calls, unreadable
