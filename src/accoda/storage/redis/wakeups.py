"""`wait`: looks whether something is takable, and sleeps until the server says that something may be.

The server publishes hints, heard on one connection for all sleepers of this storage. A hint may say up to which
sequence number jobs were stored when something became ready. A look tells the last number as well, so a hint with a
higher one is about something that the look could not see, and spares the next look. Hints come by another connection
than looks, and may be late: one whose number is not higher says nothing new.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import hiredis

from accoda.clock import Clock
from accoda.errors import StorageClosed, StorageUnavailable
from accoda.storage.common.reconnecting import Backoff, patience_of
from accoda.storage.common.wakeups import LOOK_EVERY, HintedWakeUps, Seen
from accoda.storage.redis.client import Client, Connection, ConnectionLost
from accoda.storage.redis.keys import Keys, Shard
from accoda.storage.redis.outbox import Outbox
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards

_WAIT = script("wait")
CONFIRM_FOR = 5.0  # seconds that the server may take to confirm a subscription


class Waiting:
    def __init__(self, keys: Keys, client: Client, shards: Shards, outbox: Outbox, clock: Clock | None) -> None:
        self._keys = keys
        self._client = client
        self._shards = shards
        self._outbox = outbox
        self._wakeups = HintedWakeUps(clock)
        self._subscriber = Subscriber(client, self._wakeups)

    async def close(self) -> None:
        self._wakeups.wake()
        await self._subscriber.close()

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        channels: dict[bytes, str] = {}
        by_shard: dict[Shard, list[str]] = {}
        for queue in dict.fromkeys(queues):
            for shard in self._shards.of_queue(queue):
                base = self._keys.bases[queue, shard.partition]
                channels[_channel(base)] = queue
                by_shard.setdefault(shard, []).append(base)

        async def look() -> Seen:
            if self._shards.single is None:
                self._outbox.tick()
            # Subscribed before the look, so that nothing falls between them.
            await self._subscriber.subscribe(channels)
            with self._subscriber.look():
                return _sum(await asyncio.gather(*(self._look(*place) for place in by_shard.items())))

        return await self._wakeups.wait_for_hints(queues, timeout, look)

    async def _look(self, shard: Shard, bases: Sequence[str]) -> Seen:
        answer, last = await self._client.run(_WAIT, shard, [shard.queues, *bases])
        if answer == b"now":
            return Seen(True)
        self._subscriber.saw(map(_channel, bases), int(last))
        return Seen(False, float(answer.lstrip(b"s")) if answer else None, answer[:1] == b"s")


def _channel(base: str) -> bytes:
    return f"{base}:wake".encode()


def _sum(seen: Sequence[Seen]) -> Seen:
    """The looks at several shards as one."""
    if any(each.takable for each in seen):
        return Seen(True)
    return min(seen, key=lambda each: math.inf if each.due_in is None else each.due_in, default=Seen(False))


class Subscriber:
    """One connection on which hints are heard."""

    def __init__(self, client: Client, wakeups: HintedWakeUps) -> None:
        self._client = client
        self._wakeups = wakeups
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._queues: dict[bytes, str] = {}  # channel -> queue: all that were ever asked for
        self._heard: set[bytes] = set()  # channels whose subscription is confirmed on this connection
        self._confirmed = asyncio.Event()
        self._last_word = 0.0
        self._pinged = False
        self._seen: dict[bytes, int] = {}  # by channel, the last sequence number at the last look
        self._looks = 0  # on their way
        self._hints: list[tuple[bytes, int]] = []  # that came meanwhile

    async def subscribe(self, channels: Mapping[bytes, str]) -> None:
        """Returns when hints on these channels are heard."""
        self._ping()
        if self._heard.issuperset(channels):
            return
        patience = patience_of(self._client.patience)
        until = asyncio.get_running_loop().time() + patience  # the wait for the lock counts, too
        trouble: ConnectionLost | None = None
        async with self._lock:
            self._queues.update(channels)
            backoff = Backoff()
            while not self._heard.issuperset(channels):
                left = until - asyncio.get_running_loop().time()
                if left <= 0:
                    raise StorageUnavailable(
                        f"no connection to Redis for {patience:g} s ({trouble}); look at the server, then retry"
                    ) from trouble
                try:
                    await self._connect()
                except ConnectionLost as error:
                    trouble = error
                    if self._client.closed:
                        raise StorageClosed("this storage was closed; open a new one") from error
                    self._client.outages.note(until - patience, error)
                    await backoff.nap(left)

    @contextmanager
    def look(self) -> Iterator[None]:
        """While a look is on its way, hints wait for what it tells: it may have seen what they are about."""
        self._looks += 1
        try:
            yield
        finally:
            self._looks -= 1
            if not self._looks:
                hints, self._hints = self._hints, []
                for channel, number in hints:
                    self._tell(channel, number)

    def saw(self, channels: Iterable[bytes], last: int) -> None:
        self._seen.update(dict.fromkeys(channels, last))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.abort("closed")
            await self._connection.wait_closed()

    def _tell(self, channel: bytes, number: int) -> None:
        # Before the first look at a channel nothing tells whether a hint is news: a look follows at once, and sees it.
        # (In a Cluster a hint travels from node to node, so that one from before the subscription may come after it.)
        self._wakeups.hear(self._queues[channel], ready=number > self._seen.get(channel, math.inf))

    async def _connect(self) -> None:
        connection = self._connection
        if connection is None or connection.lost is not None:
            self._heard.clear()
            connection = self._connection = await self._client.topology.open_extra(self._receive)
            if self._client.closed:
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

    def _receive(self, message: Any) -> None:
        self._last_word = asyncio.get_running_loop().time()
        self._pinged = False
        if isinstance(message, ConnectionLost):
            self._heard.clear()
            self._confirmed.set()
            self._wakeups.wake()  # hints may be lost: everyone looks
        elif isinstance(message, hiredis.ReplyError):
            assert self._connection is not None
            self._connection.abort(str(message))
        elif message[0] == b"message" and message[1] in self._queues:
            number = int(message[2]) if message[2].isdigit() else 0
            if self._looks:
                self._hints.append((message[1], number))
            else:
                self._tell(message[1], number)
        elif message[0] == b"subscribe":
            self._heard.add(message[1])
            self._confirmed.set()

    def _ping(self) -> None:
        """A connection that died silently is noticed at the second look without a word from it."""
        connection = self._connection
        if connection is None or connection.lost is not None:
            return
        if asyncio.get_running_loop().time() - self._last_word > LOOK_EVERY / 1000 * 0.9:
            if self._pinged:
                connection.abort("no answer")
                return
            self._pinged = True
            connection.tell("PING")
