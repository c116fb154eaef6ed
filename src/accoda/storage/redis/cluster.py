"""The nodes of a Redis Cluster, and which of them owns a slot."""

from __future__ import annotations

import random
from collections.abc import Sequence

import hiredis

from accoda.errors import StorageError
from accoda.storage.redis.client import Connection, ConnectionLost, Push
from accoda.storage.redis.keys import SLOTS
from accoda.storage.redis.replies import Address
from accoda.storage.redis.topology import Access, Link, SharedTask, connect


class Cluster:
    """Learns the map of slots from any node, and again whenever it proved wrong."""

    cluster = True

    def __init__(self, seeds: Sequence[Address], access: Access) -> None:
        self._seeds = list(seeds)
        self._access = access
        self._owners: list[Address | None] = [None] * SLOTS
        self._links: dict[Address, Link] = {}
        self._learning = SharedTask(self._learn)
        self._wrong = True

    async def open(self, slot: int) -> Connection:
        if self._wrong:
            await self._learning.get()
        owner = self._owners[slot]
        if owner is None:
            self._wrong = True
            raise ConnectionLost(f"no node of the Cluster owns slot {slot}")
        try:
            return await self.at(owner)
        except ConnectionLost:
            self._wrong = True  # a dead master: by the next try a replica may have taken over
            raise

    async def at(self, address: Address) -> Connection:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(lambda: connect(address, self._access))
        return await link.open()

    async def open_extra(self, on_push: Push) -> Connection:
        """To any node: what is published on one is heard on all."""
        troubles = []
        for address in self._known():
            try:
                return await connect(address, self._access, on_push)
            except ConnectionLost as error:
                troubles.append(str(error))
        raise ConnectionLost("; ".join(troubles))

    def moved(self, slot: int, address: Address | None) -> None:
        self._owners[slot] = address
        self._wrong |= address is None  # then `open` learns first

    def close(self) -> list[Connection]:
        self._learning.cancel()
        return [connection for link in self._links.values() for connection in link.close()]

    def _known(self) -> list[Address]:
        known = list(dict.fromkeys(owner for owner in self._owners if owner is not None))
        random.shuffle(known)
        return list(dict.fromkeys([*known, *self._seeds]))

    async def _learn(self) -> None:
        troubles = []
        for address in self._known():
            try:
                self._owners = await self._ask(address)
                self._wrong = False
                return
            except ConnectionLost as error:
                troubles.append(str(error))
        raise ConnectionLost("; ".join(troubles))

    async def _ask(self, address: Address) -> list[Address | None]:
        reply = await (await self.at(address)).send("CLUSTER", "SLOTS")
        if isinstance(reply, hiredis.ReplyError):
            text = str(reply)
            if "cluster support disabled" in text:
                raise StorageError(f"{address[0]}:{address[1]} is no node of a Cluster; open it with redis://")
            raise ConnectionLost(text)
        owners: list[Address | None] = [None] * SLOTS
        for first, last, master, *_ in reply:
            host = master[0].decode() if master[0] else address[0]  # a node may not know its own name
            owners[first : last + 1] = [(host, master[1])] * (last + 1 - first)
        return owners
