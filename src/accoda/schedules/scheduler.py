"""Does the ticks: takes the schedules that are due, makes their jobs, and stores each schedule for its next tick.

    take (lease) ──► plan ──► Done(lease, then=[the schedule's next job, the tick's jobs])

The jobs and the next record are follow-ups of one outcome, so they are stored in the same atomic step, or not at all.
Only the holder of the lease can take that step, and it ends the lease. So however many schedulers there are, and
wherever one of them dies, a tick gets its jobs exactly once: before the step nothing has happened and the lease comes
back; after it the schedule stands at the next tick.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from accoda.errors import StorageClosed, StorageError
from accoda.model import Bury, Done, Job, Outcome, Retry, check_lease, check_name
from accoda.retry import describe
from accoda.schedules.jobs import MakeJob, job_for
from accoda.schedules.model import QUEUE
from accoda.schedules.plan import Plan, plan
from accoda.schedules.record import Record, UnreadableSchedule, job_of, read_record
from accoda.schedules.terms import OfDemand
from accoda.storage.backoff import Backoff
from accoda.storage.protocol import Store

LEASE = 30.0
AT_ONCE = 100
"""Schedules that are taken at once."""
JOBS_AT_ONCE = 1000
"""Jobs that are made in one settlement, unless one schedule alone makes more."""
ASLEEP = 60.0
"""Seconds after which a scheduler looks again, even if nothing woke it."""
AGAIN = 5.0
LONGEST = 300.0
"""Seconds until a tick that could not be done is tried again: the first time, and at most."""

log = logging.getLogger("accoda.schedules")

T = TypeVar("T")


class Scheduler:
    """A duty: any number of them, in any number of processes, share the work."""

    queue = QUEUE

    def __init__(self, make_job: MakeJob, worker: str = "scheduler", *, lease: float = LEASE) -> None:
        check_name("worker", worker)
        check_lease(lease)
        self._make_job = make_job
        self._worker = worker
        self._lease = lease

    async def run_once(self, store: Store) -> int:
        """Do the ticks that are due; how many schedules were settled."""
        return await _to_its_end(self._round(store))

    async def run(self, store: Store) -> None:
        """Do the ticks as they come due, until cancelled."""
        trouble = Backoff(0.1, 5.0)
        while True:
            try:
                if not await self.run_once(store):
                    await store.wait([self.queue], ASLEEP)
                trouble.reset()
            except StorageClosed:
                raise
            except StorageError as error:
                log.warning("the store is away, so no schedule ticks; trying again: %s", error)
                await trouble.nap()

    async def _round(self, store: Store) -> int:
        jobs = await store.take(self.queue, AT_ONCE, lease=self._lease, worker=self._worker)
        if not jobs:
            return 0
        # The queue's own look at the clock, after the take: by then the ticks of all that were taken have come.
        now = (await store.peek(self.queue)).at
        settled = 0
        for some in _portions([decide(job, now, self._make_job) for job in jobs]):
            refused = await store.settle(some)
            for one in refused:
                log.info(
                    "schedule job %d was changed, deleted or taken over meanwhile; its tick is not ours", one.lease.id
                )
            settled += len(some) - len(refused)
        return settled


def decide(job: Job, now: int, make_job: MakeJob) -> Outcome:
    """What becomes of a schedule's job that was taken. Pure, but for the log."""
    try:
        record = read_record(job.data)
        return _tick(job, record, now, make_job)
    except UnreadableSchedule as error:
        log.error("schedule %s is broken and ticks no more: %s", job.key, error)
        return Bury(job.lease, f"{error}; delete it (accoda schedules delete {job.key}) and create it again")
    except OfDemand as error:  # to try again would not help, and the demand must not take it for a request
        log.error("schedule %s ticks no more: %s", job.key, error)
        return Bury(job.lease, f"{error}: accoda schedules add {job.key} --replace --queue … (or delete it)")
    except Exception as error:  # make_job is the app's: its trouble must stop no other schedule, and lose no tick
        tries = job.attempts - job.fresh_at
        delay = min(LONGEST, AGAIN * 2 ** min(tries, 10))
        log.error("schedule %s: its job cannot be made, trying again in %g s: %s", job.key, delay, describe(error))
        return Retry(job.lease, delay=delay, reason=f"its job cannot be made: {describe(error)}")


def _tick(job: Job, record: Record, now: int, make_job: MakeJob) -> Outcome:
    schedule, tick = record.schedule, _standing(job, record)
    if record.ended:
        return Done(job.lease)  # kept as done for a while, where people see it
    if tick is None or not schedule.enabled:
        if not schedule.enabled:  # somebody made it ready by hand: it goes back to sleep
            return Done(job.lease, [job_of(replace(record, tick=None, over=None))])
        return Done(job.lease, [job_of(replace(record, tick=None, over=None, ended=True))])
    found = plan(schedule, record.ticks, tick, now) if tick <= max(now, job.start_time) else Plan((), tick)
    if found.missed:
        _tell(record, found)
    last = found.ticks[-1] if found.ticks else record.last
    following = replace(record, tick=found.next, last=last, over=None, ended=found.next is None)
    # The record comes first: on Redis Cluster follow-ups are moved on one by one, and it should be away no longer than
    # it must. Everywhere else all of them are there at once.
    return Done(job.lease, [job_of(following), *(job_for(record, one, now, make_job) for one in found.ticks)])


def _standing(job: Job, record: Record) -> int | None:
    """The tick that a job stands for.

    A change may have replaced a later job than its writer had looked at; its tick may then have got its job already, if
    it came before the replacement. That moment is the job's start time, where it is later than the tick: a start in the
    past is "now". What came before it is left out; the writer has seen the same and is about to write again. (A tick
    that was taken, settled and replaced within the one millisecond of its moment would pass for one still to come.)
    """
    if record.tick is None or record.is_sure(job.id) or job.start_time <= record.tick:
        return record.tick
    return record.ticks.after(job.start_time)


def _tell(record: Record, found: Plan) -> None:
    schedule = record.schedule
    if schedule.catch_up == "all":
        log.warning(
            "schedule %s: the newest %d of its missed ticks get a job; older ones are left out (catch_up_limit)",
            schedule.name,
            len(found.ticks),
        )
    else:
        made = "one job stands for all of them" if found.ticks and schedule.catch_up == "once" else "they are skipped"
        log.info("schedule %s: ticks since %s were missed; %s", schedule.name, record.tick, made)


def _portions(outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """The outcomes in portions of not too many follow-ups."""
    portion: list[Outcome] = []
    jobs = 0
    for outcome in outcomes:
        count = len(outcome.then) if isinstance(outcome, Done) else 0
        if portion and jobs + count > JOBS_AT_ONCE:
            yield portion
            portion, jobs = [], 0
        portion.append(outcome)
        jobs += count
    if portion:
        yield portion


async def _to_its_end(work: Awaitable[T], patience: float = 5.0) -> T:
    """Wait for work that a cancel does not break off: what was taken is settled, not left to the end of its lease."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=patience)
        if not task.cancel() and not task.cancelled() and (error := task.exception()) is not None:
            log.warning("the last round of a scheduler that was stopped failed: %s", error)
        raise
