"""The flows among a producer's jobs: graphs of random shape, and batches. Some are cancelled, repaired, or expire."""

from __future__ import annotations

import random
from contextlib import suppress

from accoda import NotFound, Store
from accoda.flows.chains import JobCall
from accoda.flows.model import WHENS
from accoda.flows.nodes import Node
from proof.flows.starting import FlowStarter

REMEMBERED = 20
"""The latest flows of a producer, one of which it may cancel or repair."""
QUEUES = ("steps", "steps", "steps", "steps", "steps", "failing")
"""Of the nodes. Those in `failing` are buried by their handler."""


class FlowProducer:
    """Starts a flow now and then. It may be killed at any moment: a batch then stays open until it is closed."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._starter = FlowStarter(store)
        self._rng = rng
        self._ids: list[str] = []

    async def start(self) -> None:
        """One more flow, and perhaps a word to an older one."""
        await (self._batch() if self._rng.random() < 0.25 else self._graph())
        self._ids = self._ids[-REMEMBERED:]
        id, kind = self._rng.choice(self._ids), self._rng.random()
        with suppress(NotFound):  # it was not stored, or the store was put back
            if kind < 0.05:
                await self._starter.flows.cancel(id)
            elif kind < 0.15:
                await self._starter.flows.retry(id)

    async def _graph(self) -> None:
        rng = self._rng
        flow = self._starter.flow("graph", deadline=rng.uniform(1.0, 10.0) if rng.random() < 0.05 else None)
        self._ids.append(flow.id)
        nodes: list[Node] = []
        for _ in range(rng.choice((2, 4, 8, 12))):
            after = rng.sample(nodes, min(len(nodes), rng.choice((0, 1, 1, 2, 3, 6))))
            when = rng.choice(WHENS) if after and rng.random() < 0.3 else "all_done"
            nodes.append(flow.add(rng.choice(QUEUES), rng.randrange(1000), after=after, when=when))
        if rng.random() < 0.2:
            flow.on_cancel("steps", 1, name="clean up")
        await flow.start()

    async def _batch(self) -> None:
        rng = self._rng
        ends = {word: JobCall("steps", 1) for word in ("on_done", "on_ended", "on_any_dead") if rng.random() < 0.6}
        batch = self._starter.batch("batch", ends)
        self._ids.append(batch.id)
        async with batch:
            for _ in range(rng.randint(1, 3)):
                await batch.enqueue_many(rng.choice(QUEUES), range(rng.randint(1, 10)))


async def close_batches(store: Store) -> None:
    """Close the batches whose producers died, as an operator would."""
    flows = FlowStarter(store).flows
    for flow in await flows.list(state="running", limit=1_000_000):
        if flow.open:
            with suppress(NotFound):
                await flows.close(flow.id)


async def is_flow_running(store: Store) -> bool:
    """Whether there is a flow that has not ended."""
    return bool(await FlowStarter(store).flows.list(state="running", limit=1))
