"""What a worker keeps at hand to serve one queue: the handler, its runner, and the settings of the moment."""

from __future__ import annotations

from typing import Any

from accoda.model import Job, JobInfo
from accoda.priority import Priority
from accoda.queue_access import QueueAccess
from accoda.retry import Limits
from accoda.runtime.batch import Runner
from accoda.runtime.handler import Handler
from accoda.runtime.heartbeat import QueueRate, QueueSums
from accoda.settings import Settings

URGENT_SCORE = 20.0
"""The score up to which a demand's job counts as urgent."""
DECAY = 0.98
"""How much less each batch counts in a queue's rate than the one after it."""


class QueueService:
    """Serves one queue. What the settings say is read by `refresh`, and is then plain attributes."""

    access: QueueAccess
    batch_size: int
    lease: float
    timeout: float | None
    limits: Limits

    def __init__(self, handler: Handler[Any, Any, Any], runner: Runner, settings: Settings) -> None:
        self.handler = handler
        self.runner = runner
        self.queue = handler.queue
        self.codec = handler.codec
        self.new_job = handler.app.new_job
        self.number = handler.options.number
        self.secret = handler.options.secret
        self.budgets = handler.options.budgets
        self.log_for = handler.options.log_for
        self.runs_together = handler.takes_batch or handler.options.run_in == "loop"
        """Whether the jobs of a batch run at the same time, or one after the other."""
        self.one_by_one = False
        """Whether jobs are taken one by one until one comes that lost no lease: what is taken beside a suspect only
        goes back."""
        self.rate = QueueRate()
        """How fast it is: jobs, and the seconds for which they kept processors busy; old ones count less."""
        self.sums = QueueSums()
        self._settings = settings
        self.refresh()

    def refresh(self) -> None:
        """Read the settings anew."""
        said = self.handler.options
        self.batch_size = self._setting("batch_size", said.batch)
        self.lease = self._setting("visibility_timeout", said.lease)
        self.timeout = self._setting("timeout", said.timeout)
        self.limits = Limits(
            said.retry, self._setting("max_attempts", said.max_attempts), self._setting("max_crashes", said.max_crashes)
        )

    def _setting(self, knob: str, code: object) -> Any:
        return self._settings.queue(self.queue, knob, code, self.number).value

    @property
    def keep_dead_for(self) -> float | None:
        return self._setting("keep_dead_for", self.handler.options.keep_dead_for)  # type: ignore[no-any-return]

    def is_urgent(self, head: Job | JobInfo) -> bool:
        """Whether a job may use what its budgets keep for urgent work: of a demand by its score, else from HIGH on."""
        limit = self.handler.options.urgent
        if limit is None and self.handler.hooks is not None:
            limit = URGENT_SCORE
        if limit is None:
            # Halfway between two levels: an aging rank was made by the producer's clock.
            since = head.created_at if head.attempts else head.start_time
            high, normal = (self.handler.spec.policy(level, since) for level in (Priority.HIGH, Priority.NORMAL))
            limit = (high + normal) / 2
        return head.rank <= limit
