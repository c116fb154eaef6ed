"""The way between the workers and the server is bad for a while. The server itself is well."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from proof.chaos.faults.model import Target
from proof.proxy import BLACK_HOLE, REPLIES_VANISH, NetworkConditions

# How long a client bears a server that owes it an answer and is silent, in seconds (docs of each storage).
SILENCE = {"redis": 10.0, "tarantool": 10.0, "postgres": 30.0}


@dataclass
class BadNetwork:
    """`conditions` for a random time between `shortest` and `longest` seconds."""

    target: Target
    name: str
    conditions: NetworkConditions
    shortest: float
    longest: float

    async def strike(self, rng: random.Random) -> None:
        proxy, note = self.target.proxy, self.target.note
        assert proxy is not None
        note(self.name, server=self.target.kind)
        proxy.set(self.conditions)
        try:
            await asyncio.sleep(rng.uniform(self.shortest, self.longest))
        finally:
            proxy.set(NetworkConditions())
            note(f"{self.name} over", server=self.target.kind)


@dataclass
class TornReplies:
    """A handful of replies get through in part only, and their connections break."""

    target: Target
    most: int = 5
    longest: float = 2.0
    name: str = "torn reply"

    async def strike(self, rng: random.Random) -> None:
        proxy, note = self.target.proxy, self.target.note
        assert proxy is not None
        note(self.name, server=self.target.kind)
        for _ in range(rng.randint(1, self.most)):
            proxy.tear_next_reply(after=rng.choice((0, 1, rng.randrange(64), rng.randrange(4096))))
            await asyncio.sleep(rng.uniform(0.05, self.longest / self.most))
        note(f"{self.name} over", server=self.target.kind, torn=proxy.torn)


def network_faults(target: Target) -> list[BadNetwork | TornReplies]:
    """All that a proxy can do."""
    silence = SILENCE[target.kind]
    return [
        BadNetwork(target, "network cut", NetworkConditions(cut=True), 0.1, 3.0),
        # Shorter than any timeout: no client notices.
        BadNetwork(target, "network hold", NetworkConditions(hold=True), 0.1, 3.0),
        # Longer than the clients' patience with one connection, so that they must give it up by themselves.
        BadNetwork(target, "black hole", BLACK_HOLE, silence + 1.0, silence + 3.0),
        BadNetwork(target, "replies vanish", REPLIES_VANISH, silence + 1.0, silence + 3.0),
        BadNetwork(target, "network delay", NetworkConditions(delay=(0.0, 0.1)), 1.0, 5.0),
        BadNetwork(target, "network slow", NetworkConditions(bandwidth=200_000), 1.0, 5.0),
        TornReplies(target),
    ]
