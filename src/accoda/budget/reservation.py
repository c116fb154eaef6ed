"""One reservation, the jobs that were taken with it, and what they come to. Values only; no I/O."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from accoda.budget import Budget, Grant, Observation, Settlement, Spent
from accoda.budget.report import BudgetReport
from accoda.budget.usage import Usage
from accoda.errors import InvalidInput, RateLimited
from accoda.limits import COST
from accoda.model import Done, Job, JobInfo, Outcome, check_moment
from accoda.queue_access import RunningBatch
from accoda.retry import Failed
from accoda.times import milliseconds, seconds

log = logging.getLogger("accoda.worker")


class PaidQueue(Protocol):
    """A queue whose jobs are paid for, as its worker serves it. `log_for`: seconds for which token use is logged."""

    queue: str

    @property
    def budgets(self) -> tuple[str, ...]: ...

    @property
    def lease(self) -> float: ...

    @property
    def log_for(self) -> float: ...

    def is_urgent(self, head: Job | JobInfo) -> bool:
        """Whether a job may use what its budgets keep for urgent work."""
        ...


class Reservation:
    """A grant and its jobs. `open` are those of which the end is not known yet."""

    def __init__(
        self, grant: Grant, queue: PaidQueue, jobs: Sequence[Job], budgets: Mapping[str, Budget], now: int
    ) -> None:
        self.grant = grant
        self.queue = queue.queue
        self.budgets = queue.budgets
        self.lease = queue.lease
        self.logs = queue.log_for > 0
        self.renewed_at = now
        self.open = {job.id: job for job in jobs}
        self.reports: list[BudgetReport] = []
        """What the handlers said, in order. Added to from any thread."""
        self._counts = {name: budgets[name].counts for name in self.budgets}
        self._batches: dict[int, RunningBatch] = {}
        self._began: dict[int, int] = {}
        self._jobs = 0
        self._cost = 0
        self._paid: dict[int, dict[str, int]] = {}
        self._closed: dict[str, int] = {}
        self._refusals: set[int] = set()

    def begin(self, batch: RunningBatch, now: int) -> None:
        """The handler of these jobs is called: from now on they may spend."""
        for job in batch.taken:
            self._batches[job.id] = batch
            self._began[job.id] = now

    def end(self, outcome: Outcome, now: int) -> Usage | None:
        """A job has ended so. None: it was not run, and used nothing."""
        job = self.open.pop(outcome.lease.id)
        began = self._began.get(job.id)
        if began is None:
            return None
        self._look_for_a_refusal(job, now)
        cost, counts = self._spend(job)
        return Usage(
            at=now,
            operation=self.queue,
            job=job.id,
            key=job.key,
            cost=cost,
            costs={name: cost if what == "cost" else counts for name, what in self._counts.items()},
            success=isinstance(outcome, Done),
            duration=self._duration_of(job, max(0, now - began) / 1000),
        )

    def settlement(self, now: int) -> Settlement:
        """What is to be settled. A job that runs and has not ended is taken to have spent its cost."""
        for number in self.open.keys() & self._began.keys():
            self._spend(self.open.pop(number))
        observed: list[Observation] = []
        for report in list(self.reports):
            try:
                self._apply(report, observed)
            except (InvalidInput, OverflowError, ValueError) as wrong:  # from a child process, perhaps a garbled one
                log.warning("what was said of the budgets of %s is passed over: %s", self.queue, wrong)
        observed = [self._less_the_unseen(seen) for seen in observed]
        until = max(self._closed.values(), default=None)
        closes = tuple(name for name, moment in self._closed.items() if moment == until)
        return Settlement(
            self.grant, Spent(self._jobs, self._cost), tuple(observed), until, closes, len(self._refusals)
        )

    def _apply(self, report: BudgetReport, observed: list[Observation]) -> None:
        if report.budget is not None and report.budget not in self.budgets:
            raise InvalidInput("budget", f"{report.budget!r:.80} is none of the queue's")
        if report.left is not None and report.budget is not None:
            observed.append(Observation(report.budget, report.left, report.at, report.refill_in, report.reset_at))
        elif report.closed_for is not None:
            self._close(report.budget, report.at + round(report.closed_for * 1000), id(report))
        elif report.closed_until is not None:
            self._close(report.budget, report.closed_until, id(report))

    def _less_the_unseen(self, seen: Observation) -> Observation:
        """The API's number, less what jobs of this reservation have spent whose own answers told nothing.

        Each job's answer was observed by itself, but for some (an answer that could not be read, a call that was cut
        off). The API may have counted those only after it gave its last number, so they are taken off.
        """
        told = {report.job for report in self.reports if report.left is not None and report.budget == seen.budget}
        if None in told:
            return seen  # said of the batch as a whole
        unseen = sum(paid[self._counts[seen.budget]] for job, paid in self._paid.items() if job not in told)
        return replace(seen, left=seen.left - unseen) if unseen else seen

    @property
    def other_closes(self) -> list[tuple[tuple[str, ...], int]]:
        """Budgets that are closed too, but not for as long as those of the settlement."""
        last = max(self._closed.values(), default=0)
        return [((name,), until) for name, until in self._closed.items() if until < last]

    def used(self, budget: str) -> int:
        """What one of the budgets has paid so far."""
        return self._cost if self._counts[budget] == "cost" else self._jobs

    def _spend(self, job: Job) -> tuple[int, int]:
        cost, counts = self._cost_of(job)
        self._cost = min(COST, self._cost + cost)
        self._jobs += counts
        self._paid[job.id] = {"cost": cost, "jobs": counts}
        return cost, counts

    def _cost_of(self, job: Job) -> tuple[int, int]:
        """What a run cost: in tokens, and in jobs. What the handler said counts, else the job's own cost."""
        said = [report.spent for report in self.reports if report.job == job.id and report.spent is not None]
        if said:
            cost = max(0, min(COST, said[-1]))
            return cost, min(cost, 1)
        return (0, 0) if self._refusal(job) is not None else (job.cost, 1)

    def _duration_of(self, job: Job, ran: float) -> float:
        """How long its call took: what the handler said, else how long the handler ran."""
        said = [report.duration for report in self.reports if report.job == job.id and report.duration is not None]
        return said[-1] if said else ran

    def _refusal(self, job: Job) -> RateLimited | None:
        batch = self._batches.get(job.id)
        result = None if batch is None else batch.results.get(job.id)
        return result.error if isinstance(result, Failed) and isinstance(result.error, RateLimited) else None

    def _look_for_a_refusal(self, job: Job, now: int) -> None:
        error = self._refusal(job)
        if error is None:
            return
        budget = error.budget
        if budget is not None and budget not in self.budgets:
            log.warning("RateLimited of %s names no budget of the queue: %.80r; all are closed", self.queue, budget)
            budget = None
        try:
            if error.at is not None:
                until = milliseconds("at", error.at)
            else:
                until = now + round(seconds("retry_after", error.delay or 0) * 1000)
            self._close(budget, until, id(error))  # one error may have ended a whole batch: it is one refusal
        except InvalidInput as wrong:
            log.warning("RateLimited of %s closes nothing: %s", self.queue, wrong)

    def _close(self, budget: str | None, until: int, refusal: int) -> None:
        check_moment("until", until)
        self._refusals.add(refusal)
        for name in self.budgets if budget is None else (budget,):
            self._closed[name] = max(until, self._closed.get(name, 0))
