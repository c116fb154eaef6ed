"""What a worker keeps at hand to serve one queue: the handler, its runner, and the settings of the moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from accoda.enqueue import EnqueueOptions
from accoda.envelope import MARK
from accoda.errors import RetryLater, WorkerStopped
from accoda.model import Bury, Done, Job, JobInfo, NewJob, Outcome, Refused, Retry
from accoda.payload import UnreadablePayload
from accoda.priority import Priority
from accoda.retry import PLAIN, Failed, Limits, Result, decide, describe, give_up
from accoda.runtime.batch import Batch, Running
from accoda.runtime.endings import limits_of, with_call
from accoda.runtime.events import HandlerStats
from accoda.runtime.handler import Handler
from accoda.runtime.runners.base import Runner
from accoda.settings import Settings, Snapshot

FOLLOW_UPS = 1000
"""How many follow-ups are settled in one call, unless one job alone has more."""
URGENT_SCORE = 20.0
"""The score up to which a demand's job counts as urgent."""


class Terms(Struct, frozen=True):
    """What the settings say of a queue, as of one snapshot of them."""

    snapshot: Snapshot
    batch_size: int
    lease: float
    timeout: float | None
    limits: Limits


class Desk:
    """Serves one queue."""

    def __init__(self, handler: Handler[Any, Any, Any], runner: Runner, settings: Settings) -> None:
        self.handler = handler
        self.runner = runner
        self.queue = handler.queue
        self.number = handler.options.number
        self._settings = settings
        self._careful = False
        self._last_terms: Terms | None = None

    @property
    def all_at_once(self) -> bool:
        """Whether the jobs of a batch run together, or one after the other."""
        return self.handler.takes_batch or self.handler.options.run_in == "loop"

    @property
    def terms(self) -> Terms:
        """The settings of this moment. A change of theirs is a new snapshot, so one look tells whether they changed."""
        known = self._last_terms
        if known is None or known.snapshot is not self._settings.current:
            known = self._last_terms = self._read_terms()
        return known

    def _read_terms(self) -> Terms:
        snapshot, said = self._settings.current, self.handler.options

        def found(knob: str, code: object) -> Any:
            return snapshot.queue(self.queue, knob, code, self.number).value

        return Terms(
            snapshot,
            batch_size=found("batch_size", said.batch),
            lease=found("visibility_timeout", said.lease),
            timeout=found("timeout", said.timeout),
            limits=Limits(said.retry, found("max_attempts", said.max_attempts), found("max_crashes", said.max_crashes)),
        )

    @property
    def batch_size(self) -> int:
        return 1 if self._careful else self.terms.batch_size

    @property
    def lease(self) -> float:
        return self.terms.lease

    @property
    def timeout(self) -> float | None:
        return self.terms.timeout

    @property
    def budgets(self) -> tuple[str, ...]:
        return self.handler.options.budgets

    @property
    def log_for(self) -> float:
        return self.handler.options.log_for

    def is_urgent(self, head: Job | JobInfo) -> bool:
        """Whether a job may use what its budgets keep for urgent work: of a demand by its score, else from HIGH on."""
        limit = self.handler.options.urgent
        if limit is None and self.handler.rites is not None:
            limit = URGENT_SCORE
        if limit is None:
            # Halfway between two levels: an aging rank was made by the clock of the one who enqueued.
            since = head.created_at if head.attempts else head.start_time
            high, normal = (self.handler.line.policy(level, since) for level in (Priority.HIGH, Priority.NORMAL))
            limit = (high + normal) / 2
        return head.rank <= limit

    @property
    def keep_dead_for(self) -> float | None:
        code = self.handler.options.keep_dead_for
        return self._settings.queue(self.queue, "keep_dead_for", code, self.number).value  # type: ignore[no-any-return]

    @property
    def limits(self) -> Limits:
        return self.terms.limits

    def open_batches(self, jobs: Sequence[Job]) -> tuple[list[Batch[Any]], list[Outcome]]:
        """The jobs as batches to be run one after the other, and the burials of those that must not run.

        A job that lost a lease may have killed its worker, so it runs apart from those that did not; near the end of
        its crashes it runs alone. Those that lost the most leases run last, when the others are settled. So a poison
        job takes no good one down with it, and a worker that was killed from outside costs its jobs little.
        """
        plain = self.handler.codec.open_plain(jobs)
        if plain is not None:
            self._careful = False
            batch = Batch(self.queue, jobs, plain, self._new_job)
            batch.plain = True
            return [batch], []
        return self._sort_out(jobs)

    def _sort_out(self, jobs: Sequence[Job]) -> tuple[list[Batch[Any]], list[Outcome]]:
        """`open_batches`, where some of the jobs are not as nearly all are."""
        limits = self.limits
        buried: list[Outcome] = []
        healthy: list[Job] = []
        suspects: list[Job] = []
        payloads: dict[int, Any] = {}
        for job in jobs:
            try:
                payloads[job.id] = self.handler.codec.open(job)
            except UnreadablePayload as error:
                buried.append(self.ending(job, Bury(job.lease, describe(error))))
                continue
            hopeless = give_up(job, limits_of(job, limits)) if job.attempts else None
            if hopeless is not None:
                buried.append(self.ending(job, hopeless))
            elif job.crashes:
                suspects.append(job)
            else:
                healthy.append(job)
        self._careful = self._careful and not healthy
        suspects.sort(key=lambda job: job.crashes)
        alone_from = self.alone_from(limits)
        together = [job for job in suspects if job.crashes < alone_from]
        groups = [healthy, together, *([job] for job in suspects if job.crashes >= alone_from)]
        return [self._batch(group, payloads) for group in groups if group], buried

    def alone_from(self, limits: Limits) -> int:
        """The number of crashes from which on a job runs alone: twice, before it is given up."""
        return max(1, limits.max_crashes - 2) if limits.max_crashes is not None else 3

    def is_suspect(self, job: Job) -> bool:
        """Whether a job lost so many leases that nothing else should be in hand while it runs."""
        return bool(job.crashes) and job.crashes >= self.alone_from(self.limits)

    def be_careful(self) -> None:
        """Take jobs one by one until one comes that lost no lease: what is taken beside a suspect only goes back."""
        self._careful = True

    def outcomes(self, batch: Batch[Any]) -> list[Outcome]:
        """What becomes of jobs of a batch of which something was said, but for those that are settled already."""
        if batch.all_plain():
            return [Done(job.lease) for job in batch.taken]
        limits = self.limits
        found: list[Outcome] = []
        for job in batch.taken:
            result = batch.result_of(job)
            if result is None or (batch.settled and job.id in batch.settled):
                continue
            # Nearly all went well and left nothing: nothing to decide.
            outcome = Done(job.lease) if result is PLAIN else decide(job, result, limits_of(job, limits))
            found.append(self.ending(job, outcome))
        return found

    def decide(self, job: Running[Any], result: Result) -> Outcome:
        """What becomes of one job."""
        return self.ending(job.job, decide(job.job, result, limits_of(job.job, self.limits)))

    def ending(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome, with the call of the job's webhook if it asks for one."""
        data = job.data
        return outcome if not data or data[0] != MARK else with_call(outcome, job, self.handler.options.secret)

    def _batch(self, jobs: Sequence[Job], payloads: dict[int, Any]) -> Batch[Any]:
        return Batch(self.queue, jobs, [payloads[job.id] for job in jobs], self._new_job)

    def _new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob:
        return self.handler.app.new_job(queue, payload, options)


def with_follow_ups(outcomes: list[Outcome], follow_ups: Sequence[NewJob]) -> bool:
    """Let the first `Done` carry a batch's follow-ups; False: there is none that could."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Done):
            outcomes[index] = Done(outcome.lease, (*outcome.then, *follow_ups), outcome.result, outcome.waiters)
            return True
    return False


def all_lost(outcomes: Sequence[Outcome]) -> list[Refused]:
    """The answer of a store that applied none of them."""
    return [Refused(outcome.lease, "lost") for outcome in outcomes]


def portions(outcomes: list[Outcome]) -> list[list[Outcome]]:
    """The outcomes in parts of about a thousand follow-ups each: no store stands still for a batch that has many."""
    parts: list[list[Outcome]] = [[]]
    many = 0
    for outcome in outcomes:
        follow_ups = 0 if isinstance(outcome, Retry) else len(outcome.then)
        if parts[-1] and many + follow_ups > FOLLOW_UPS:
            parts.append([])
            many = 0
        parts[-1].append(outcome)
        many += follow_ups
    return parts


def summary(batch: Batch[Any], done: int, failed: Sequence[Outcome], lost: int, duration: float) -> HandlerStats:
    """Settled jobs of a batch in numbers. A retry that the handler asked for is no error."""
    if not failed:
        return HandlerStats(processed=done, lost=lost, duration=duration)
    errors = [result.error for outcome in failed if isinstance(result := batch.results.get(outcome.lease.id), Failed)]
    errors = [error for error in errors if not isinstance(error, (RetryLater, WorkerStopped))]
    return HandlerStats(
        processed=done,
        errors=len(errors),
        retried=sum(isinstance(outcome, Retry) for outcome in failed),
        buried=sum(isinstance(outcome, Bury) for outcome in failed),
        lost=lost,
        duration=duration,
        last_error=describe(errors[-1]) if errors else "",
    )
