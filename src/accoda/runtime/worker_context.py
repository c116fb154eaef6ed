"""What the processors of a worker share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from accoda.clock import Clock, SystemClock
from accoda.runtime.attempts import AttemptLog
from accoda.runtime.batch import BatchRun
from accoda.runtime.events import Monitor
from accoda.runtime.false_crashes import FalseCrashes
from accoda.runtime.poison_isolation import PoisonIsolation
from accoda.runtime.rotation import Rotation
from accoda.runtime.settled_by_handlers import SettledByHandlers
from accoda.runtime.unhandled_types import UnhandledTypes
from accoda.storage.protocol import Store


class WorkerContext:
    """The state of one worker. Belongs to its event loop."""

    def __init__(self, store: Store, worker: str, queues: Sequence[str], clock: Clock | None = None) -> None:
        self.store = store
        self.worker = worker
        self.clock = clock or SystemClock()
        self.time: Callable[[], float] = time.time if clock is None else lambda: clock.now() / 1000
        """The present moment in seconds, by this process's clock."""
        self.rotation = Rotation(queues)
        self.isolation = PoisonIsolation(self.rotation.call_all)
        self.false_crashes = FalseCrashes()
        self.unhandled = UnhandledTypes()
        self.settled_by_handlers = SettledByHandlers()
        self.monitors: Sequence[Monitor] = ()
        self.attempts = AttemptLog(worker)
        self.batches: set[BatchRun] = set()
        """Those that are taken and not settled: the lease heartbeat keeps their leases."""
        self.stopping = False
        self.draining = False
        """Whether its processors finish what they have and take nothing more."""
        self.aborted = False
        self.jobs_run = 0
