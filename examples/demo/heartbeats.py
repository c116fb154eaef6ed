"""The heartbeats of the demo's own workers: the dashboard and `why` know workers only by these."""

from __future__ import annotations

import os
import socket

from examples.demo.jobs import QUEUE

from accoda.clock import Clock
from accoda.runtime.heartbeat import PREFIX, Heartbeat, ProcessorState, encode
from accoda.storage.protocol import Storage

EVERY, LIVES = 1.0, 5.0


class DemoHeartbeat:
    """One worker's heartbeat. `busy` is what it runs: how many jobs, the first one's id, and since when."""

    def __init__(self, name: str, slots: int, storage: Storage, clock: Clock) -> None:
        self._id = f"demo-{name}"
        self._name = name
        self._slots = slots
        self._storage = storage
        self._clock = clock
        self._started = clock.now()
        self.busy: tuple[int, int, int] | None = None

    async def beat(self) -> None:
        """Write that it is alive, and what it does."""
        now = self._clock.now()
        state = ProcessorState() if self.busy is None else ProcessorState(QUEUE, *self.busy)
        said = Heartbeat(
            id=self._id,
            name=self._name,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=self._started,
            beat_at=now,
            queues=(QUEUE,),
            max_processors=1,
            slots=self._slots,
            free=self._slots - state.jobs,
            processors=(state,),
        )
        await self._storage.write(PREFIX + self._id, encode(said), ttl=LIVES)
