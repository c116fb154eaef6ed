"""Hears from the server that something may be takable, on one connection for all sleepers of this storage.

A message is a hint and nothing more: whoever hears one looks. Hints can be lost (a connection that broke, a fail-over),
so the sleepers look when the connection is lost, after every new subscription, and every few seconds anyway.

A hint may say up to which sequence number jobs were stored when something became ready. A look tells the last number as
well. So a hint with a higher one is about something that the look could not see, and spares the next look. A hint that
took longer than the look after it (they come by two connections) has no higher number, and does not deceive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import hiredis

from accoda.errors import StorageClosed, StorageUnavailable
from accoda.storage.backoff import Backoff
from accoda.storage.patience import patience_of
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.connection import Connection, ConnectionLost
from accoda.storage.signal import Signal

LOOK_EACH = 5_000  # ms between looks without a hint
CONFIRM_FOR = 5.0  # seconds that the server may take to confirm a subscription


class Wakes:
    def __init__(self, caller: Caller, signal: Signal, patience: float) -> None:
        self._caller = caller
        self._signal = signal
        self._patience = patience
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._queues: dict[bytes, str] = {}  # channel -> queue: all that were ever asked for
        self._heard: set[bytes] = set()  # channels whose subscription is confirmed on this connection
        self._confirmed = asyncio.Event()
        self._trouble: ConnectionLost | None = None  # why the last subscription failed
        self._last_word = 0.0
        self._pinged = False
        self.hints = 0  # how many had a number
        self._last_hint: dict[bytes, tuple[int, int]] = {}  # by channel: the how manieth it was, and its number

    async def want(self, channels: Mapping[bytes, str]) -> None:
        """Returns when messages on these channels are heard. The look comes after it, so that nothing falls between."""
        self._ping()
        if self._heard.issuperset(channels):
            return
        patience = patience_of(self._patience)
        until = asyncio.get_running_loop().time() + patience  # the wait for our turn counts, too
        async with self._lock:
            self._queues.update(channels)
            backoff = Backoff()
            while not self._heard.issuperset(channels):
                left = until - asyncio.get_running_loop().time()
                if left <= 0:
                    raise StorageUnavailable(
                        f"no connection to Redis for {patience:g} s ({self._trouble}); look at the server, then retry"
                    ) from self._trouble
                try:
                    await self._subscribe()
                except ConnectionLost as error:
                    self._trouble = error
                    if self._caller.closed:
                        raise StorageClosed("this storage was closed; open a new one") from error
                    await backoff.nap(left)

    def told_of_more(self, hints: int, last: Mapping[bytes, float]) -> bool:
        """Whether something became ready on one of these channels that a look did not see.

        `hints` is how many had been heard when the look was answered, `last` which number it told. Both are asked: a
        number that was heard before may be of a store that has lost its end since, and counts anew.
        """
        if hints == self.hints:
            return False
        nothing = (0, 0)
        for channel, seen in last.items():
            count, number = self._last_hint.get(channel, nothing)
            if count > hints and number > seen:
                return True
        return False

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.abort("closed")
            await self._connection.wait_closed()

    async def _subscribe(self) -> None:
        connection = self._connection
        if connection is None or connection.lost is not None:
            self._heard.clear()
            connection = self._connection = await self._caller.topology.open_extra(self._hear)
            if self._caller.closed:
                connection.abort("closed")
                raise ConnectionLost("closed")
        connection.tell("SUBSCRIBE", *(set(self._queues) - self._heard))
        while self._heard != set(self._queues):
            if connection.lost is not None:
                raise connection.lost
            self._confirmed.clear()
            try:
                async with asyncio.timeout(CONFIRM_FOR):
                    await self._confirmed.wait()
            except TimeoutError:
                connection.abort("the subscription was not confirmed")

    def _hear(self, message: Any) -> None:
        self._last_word = asyncio.get_running_loop().time()
        self._pinged = False
        if isinstance(message, ConnectionLost):
            self._heard.clear()
            self._confirmed.set()
            self._signal.ring()
        elif isinstance(message, hiredis.ReplyError):
            assert self._connection is not None
            self._connection.abort(str(message))
        elif message[0] == b"message":
            queue = self._queues.get(message[1])
            if queue is not None:
                if message[2].isdigit():
                    self.hints += 1
                    self._last_hint[message[1]] = (self.hints, int(message[2]))
                self._signal.ring((queue,))
        elif message[0] == b"subscribe":
            self._heard.add(message[1])
            self._confirmed.set()

    def _ping(self) -> None:
        """A connection that died without a word is noticed at the second look in silence."""
        connection = self._connection
        if connection is None or connection.lost is not None:
            return
        if asyncio.get_running_loop().time() - self._last_word > LOOK_EACH / 1000 * 0.9:
            if self._pinged:
                connection.abort("no answer")
                return
            self._pinged = True
            connection.tell("PING")
