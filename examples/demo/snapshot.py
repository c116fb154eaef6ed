"""One moment of the demo, ready to be drawn."""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal

from examples.demo.event_log import Event, EventLog
from examples.demo.jobs import QUEUE
from msgspec import Struct

from accoda.clock import Clock
from accoda.model import Cursor, QueueStats
from accoda.priority import Priority
from accoda.storage.protocol import Store

Phase = Literal["running", "draining"]


class Snapshot(Struct, frozen=True):
    """All that the view shows. `rates` are jobs done each second, `depths` ready jobs, oldest first."""

    phase: Phase
    elapsed: float
    stats: QueueStats
    enqueued: int = 0
    refused: int = 0
    ready: dict[Priority, int] = {}
    mean_waits: dict[Priority, float] = {}
    rates: tuple[float, ...] = ()
    depths: tuple[int, ...] = ()
    last: tuple[Event, ...] = ()
    notable: tuple[Event, ...] = ()


class Sampler:
    """Takes snapshots, and keeps the counts of the last seconds for the trends."""

    def __init__(self, storage: Store, clock: Clock, log: EventLog) -> None:
        self._storage = storage
        self._clock = clock
        self._log = log
        self._started = self._marked = clock.now()
        self._done = 0
        self._rates: deque[float] = deque(maxlen=120)
        self._depths: deque[int] = deque(maxlen=120)

    async def run_once(self, phase: Phase = "running") -> Snapshot:
        """The present moment."""
        stats = (await self._storage.stats()).queues.get(QUEUE, QueueStats())
        self._mark(stats)
        return Snapshot(
            phase=phase,
            elapsed=(self._clock.now() - self._started) / 1000,
            stats=stats,
            enqueued=self._log.enqueued,
            refused=self._log.counts["refused"],
            ready=await self._ready_by_priority(),
            mean_waits=self._log.mean_waits(),
            rates=tuple(self._rates),
            depths=tuple(self._depths),
            last=tuple(self._log.last),
            notable=tuple(self._log.notable),
        )

    def _mark(self, stats: QueueStats) -> None:
        passed = self._clock.now() - self._marked
        if passed >= 1000:
            self._rates.append((stats.done - self._done) * 1000 / passed)
            self._depths.append(stats.ready)
            self._marked += passed
            self._done = stats.done

    async def _ready_by_priority(self) -> dict[Priority, int]:
        # A scan, which `stats` never does; the producer keeps the queue short.
        counts: Counter[Priority] = Counter()
        after: Cursor | None = None
        while page := await self._storage.browse(QUEUE, "ready", order="id", after=after, limit=200):
            counts.update(Priority(int(info.rank)) for info in page)
            after = page[-1].cursor("id")
        return {level: counts[level] for level in Priority}
