"""The worker: take, pretend to work, decide, settle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from examples.demo.event_log import Event, EventLog, What
from examples.demo.heartbeats import DemoHeartbeat
from examples.demo.jobs import QUEUE, read_work

from accoda.clock import Clock
from accoda.model import Bury, Done, Job, Outcome, Retry
from accoda.priority import Priority
from accoda.storage.protocol import Storage

BATCH = 3
LEASE = 10.0
WORK_FOR = 0.4
LAST_ATTEMPT = 3
"""A job that fails at this attempt is buried."""

Pause = Callable[[float], Awaitable[None]]


def decide(job: Job) -> Outcome:
    """The outcome of a job that ran: the payload says how many of its runs fail."""
    if job.attempts >= read_work(job.data).fails:
        return Done(job.lease)
    if job.attempts < LAST_ATTEMPT:
        return Retry(job.lease, delay=0.5 * 2**job.attempts, reason="no answer")
    return Bury(job.lease, reason="no answer at all")


def describe(job: Job, what: What, worker: str, note: str = "") -> Event:
    """The event of a taken job."""
    return Event(what, job.id, read_work(job.data).kind, job.rank, job.attempts, worker, note)


def _told(job: Job, outcome: Outcome, worker: str) -> Event:
    match outcome:
        case Done():
            return describe(job, "done", worker)
        case Retry():
            return describe(job, "retried", worker, f"in {outcome.delay:g} s: {outcome.reason}")
        case Bury():
            return describe(job, "buried", worker, outcome.reason)


class Worker:
    """One take-run-settle loop. `pause` stands for the work, so that tests need not sleep."""

    def __init__(self, name: str, storage: Storage, clock: Clock, log: EventLog, pause: Pause) -> None:
        self.name = name
        self._storage = storage
        self._clock = clock
        self._log = log
        self._pause = pause
        self.heartbeat = DemoHeartbeat(name, BATCH, storage, clock)

    async def run_once(self) -> int:
        """Run one batch; how many jobs it had."""
        jobs = await self._storage.take(QUEUE, BATCH, lease=LEASE, worker=self.name)
        if jobs:
            self._note_waits(jobs)
            self.heartbeat.busy = (len(jobs), jobs[0].id, self._clock.now())
            await self._pause(WORK_FOR)
            self.heartbeat.busy = None
            await self._settle(jobs)
        return len(jobs)

    def _note_waits(self, jobs: Sequence[Job]) -> None:
        now = self._clock.now()
        for job in jobs:
            self._log.waited(Priority(int(job.rank)), max(0, now - job.start_time))

    async def _settle(self, jobs: Sequence[Job]) -> None:
        outcomes = [decide(job) for job in jobs]
        refused = {refusal.lease: refusal.why for refusal in await self._storage.settle(outcomes)}
        for job, outcome in zip(jobs, outcomes, strict=True):
            why = refused.get(job.lease)
            self._log.note(describe(job, "refused", self.name, why) if why else _told(job, outcome, self.name))
