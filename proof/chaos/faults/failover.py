"""A Redis master dies, a replica takes over, and the dead one comes back as a replica."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from proof.chaos.faults.model import Target
from proof.servers.redis import ClusterSet, RedisServer, SentinelSet


@dataclass
class FailOver:
    """Kill a master (of a Cluster: one of them), and start it again when its replica is the master.

    It ends when all replicas follow: a second one before that could lose what no replica has.
    """

    target: Target
    name: str = "fail-over"

    async def strike(self, rng: random.Random) -> None:
        group, note = self.target.group, self.target.note
        assert group is not None
        lost = await asyncio.to_thread(self._pick, group, rng)
        note("server down", server=self.target.kind, port=lost.port, how="kill")
        await asyncio.to_thread(lost.kill)
        try:
            await asyncio.to_thread(group.wait_for_heir, lost)
            note("fail-over", server=self.target.kind, lost=lost.port)
        finally:
            await asyncio.to_thread(lost.start)
            await asyncio.to_thread(group.wait_until_in_order)
            note("server up", server=self.target.kind, port=lost.port)

    def _pick(self, group: SentinelSet | ClusterSet, rng: random.Random) -> RedisServer:
        return rng.choice(sorted(group.current_masters(), key=lambda server: server.port))


@dataclass
class ReplicaKill:
    """Kill a replica, and start it again. Where each master has one only, writes wait for it."""

    target: Target
    longest: float = 0.5
    name: str = "replica kill"

    async def strike(self, rng: random.Random) -> None:
        group, note = self.target.group, self.target.note
        assert group is not None
        masters = await asyncio.to_thread(group.current_masters)
        lost = rng.choice([server for server in group.data_servers if server not in masters])
        note("server down", server=self.target.kind, port=lost.port, how="kill")
        await asyncio.to_thread(lost.kill)
        try:
            await asyncio.sleep(rng.uniform(0.0, self.longest))
        finally:
            await asyncio.to_thread(lost.start)
            await asyncio.to_thread(group.wait_until_in_order)
            note("server up", server=self.target.kind, port=lost.port)
