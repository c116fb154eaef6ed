"""What a worker keeps at hand to serve one queue: its handlers, their runners, and the settings of the moment."""

from __future__ import annotations

import os
from typing import Any

from accoda.model import Job, JobInfo
from accoda.payload import Codec
from accoda.priority import Priority
from accoda.queue_access import QueueAccess
from accoda.retry import Limits
from accoda.runtime.batch import Runner
from accoda.runtime.handler import Handler, QueueHandlers
from accoda.runtime.heartbeat import QueueRate, QueueSums
from accoda.runtime.served_lanes import ServedLanes
from accoda.settings import Settings

URGENT_SCORE = 20.0
"""The score up to which a demand's job counts as urgent."""
DECAY = 0.98
"""How much less each settlement counts in a queue's rate than the one after it."""


class HandlerService:
    """Runs the jobs of one handler. What the settings say is read by `refresh`, and is then plain attributes."""

    lease: float
    timeout: float | None
    limits: Limits

    def __init__(self, handler: Handler[Any, Any, Any], runner: Runner, alone: bool) -> None:
        self.handler = handler
        self.runner = runner
        self.queue = handler.queue
        self.type = handler.type
        self.number: int | None = None
        self.takes_batch = handler.takes_batch
        self.renew = handler.options.renew
        self.explicit = handler.options.settle == "explicit" and handler.takes_batch
        self.alone = alone and not handler.takes_batch
        self.codec = handler.codec
        # A codec of another class may open a job in its own way, and only once.
        self.open_bare = handler.codec.decode_bare if type(handler.codec) is Codec else None
        self.new_job = handler.app.new_job
        self.secret = handler.options.secret
        self.on_dead = handler.options.on_dead


class QueueService:
    """Serves one queue. Belongs to the worker's event loop."""

    access: QueueAccess
    batch_size: int
    lease: float
    concurrency: int
    """How many jobs of the queue may run at once in this worker."""

    def __init__(self, handlers: QueueHandlers, services: list[HandlerService], settings: Settings) -> None:
        self.queue = handlers.queue
        self.options = handlers.options
        self.number = self.options.number
        self.budgets = self.options.budgets
        self.log_for = self.options.log_for
        self.handlers = services
        self.whole = all(service.takes_batch for service in services)
        """Whether it has handlers of batches only: then each processor runs one batch at a time."""
        self.running = 0
        """Jobs that run at present, or whose threads do not end."""
        self.one_by_one = False
        """Whether jobs are taken one by one until one comes that lost no lease: what is taken beside a suspect only
        goes back."""
        self.rate = QueueRate()
        """How fast it is: jobs, and the seconds for which they kept processors busy; old ones count less."""
        self.sums = QueueSums()
        self.served = ServedLanes(handlers.queue, handlers.options.lanes is not None)
        self._settings = settings
        self._by_type = {service.type: service for service in services}
        self._others = self._by_type.get(None)
        self.untyped = self._others or (services[0] if len(services) == 1 else None)
        """What runs a job without a type; None: nothing here does."""
        for service in services:
            service.number = self.number
        self.refresh()

    def refresh(self) -> None:
        """Read the settings anew."""
        self.batch_size = self._setting("batch_size", self.options.batch)
        self.lease = self._setting("visibility_timeout", self.options.lease)
        self.concurrency = self._setting("concurrency", self.options.concurrency) or self._default_concurrency()
        for service in self.handlers:
            said = service.handler.options
            service.lease = self.lease
            service.timeout = self._setting("timeout", said.timeout)
            service.limits = Limits(
                said.retry,
                self._setting("max_attempts", said.max_attempts),
                self._setting("max_crashes", said.max_crashes),
                service.handler.spec.policy,
            )

    def owner_of(self, type: str | None) -> HandlerService | None:
        """What runs jobs of this type; None: nothing here does."""
        return self.untyped if type is None else self._by_type.get(type, self._others)

    @property
    def slots(self) -> int:
        """The jobs that keep one processor busy."""
        return self.batch_size if self.whole else self.concurrency

    @property
    def types(self) -> tuple[str | None, ...]:
        """Of which types it handles jobs; None: of those that no other handler is for."""
        return tuple(self._by_type)

    @property
    def problem(self) -> str:
        """What keeps a runner from running jobs; empty: nothing does."""
        return "; ".join(problem for service in self.handlers if (problem := service.runner.problem))

    def _default_concurrency(self) -> int:
        """Of a queue of which nobody says it: a child for each core; or all that the process may run (`-c`), unless
        something is said of its batches."""
        processors: int = self._settings.worker("max_processors").value
        if all(service.handler.options.run_in == "process" for service in self.handlers):
            return max(processors, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
        of_process: int | None = self._settings.worker("concurrency").value
        batch = self._settings.queue(self.queue, "batch_size", self.options.batch, self.number)
        if of_process is not None and batch.source == "default":
            return of_process
        return processors * self.batch_size

    def _setting(self, knob: str, code: object) -> Any:
        return self._settings.queue(self.queue, knob, code, self.number).value

    @property
    def keep_dead_for(self) -> float | None:
        return self._setting("keep_dead_for", self.options.keep_dead_for)  # type: ignore[no-any-return]

    def is_urgent(self, head: Job | JobInfo) -> bool:
        """Whether a job may use what its budgets keep for urgent work: of a demand by its score, else from HIGH on."""
        handler = self.handlers[0].handler
        limit = self.options.urgent
        if limit is None and handler.hooks is not None:
            limit = URGENT_SCORE
        if limit is None:
            # Halfway between two levels: an aging rank was made by the producer's clock.
            since = head.created_at if head.attempts else head.start_time
            high, normal = (handler.spec.policy(level, since) for level in (Priority.HIGH, Priority.NORMAL))
            limit = (high + normal) / 2
        return head.rank <= limit
