"""Does the ticks: takes the schedules that are due, makes their jobs, and stores each schedule with its next tick.

    take (lease) ──► plan ──► Done(lease, then=[the schedule's next job, the tick's jobs])

The jobs and the next record are follow-ups of one outcome, so they are stored in the same atomic step, or not at all.
Only the holder of the lease can take that step, and it ends the lease. So however many schedulers there are, and
wherever one of them dies, a tick gets its jobs exactly once: before the step nothing has happened and the lease ends by
itself; after it the schedule stands for the next tick.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from msgspec.structs import replace

from accoda.errors import StorageClosed, StorageError
from accoda.model import Bury, Done, Head, Job, Outcome, Retry, check_lease, check_name
from accoda.queue_access import portions
from accoda.retry import describe
from accoda.schedules.model import QUEUE
from accoda.schedules.plan import Plan, plan
from accoda.schedules.record import Record, UnreadableSchedule, job_of, read_record, tick_job
from accoda.schedules.spec import DemandQueue, MakeJob
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store

LEASE = 30.0
AT_ONCE = 100
"""Schedules that are taken at once."""
WAIT = 60.0
"""Seconds after which a scheduler looks again, even if nothing woke it."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds until a tick that failed is tried again: the first time, and at most."""

log = logging.getLogger("accoda.schedules")

T = TypeVar("T")


class Scheduler:
    """A system job: any number of schedulers, in any number of processes, share the work."""

    queue = QUEUE

    def __init__(self, make_job: MakeJob, worker: str = "scheduler", *, lease: float = LEASE) -> None:
        check_name("worker", worker)
        check_lease(lease)
        self._make_job = make_job
        self._worker = worker
        self._lease = lease

    async def run_once(self, store: Store) -> int:
        """Do the ticks that are due; how many schedules were settled."""
        return await _finish(self._round(store))

    async def run(self, store: Store) -> None:
        """Do the ticks as they come due, until cancelled."""
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                if not await self.run_once(store):
                    await store.wait([self.queue], WAIT)
                backoff.reset()
            except StorageClosed:
                raise
            except StorageError as error:
                log.warning("the store is away and no schedule ticks; trying again: %s", error)
                await backoff.nap()

    async def _round(self, store: Store) -> int:
        jobs = await store.take(self.queue, AT_ONCE, lease=self._lease, worker=self._worker)
        if not jobs:
            return 0
        now = (await store.look(Head(self.queue))).at  # after the take, so that the ticks of all jobs have come
        settled = 0
        for some in portions([decide(job, now, self._make_job) for job in jobs]):
            refused = await store.settle(some)
            for one in refused:
                log.info("schedule job %d was changed, deleted or taken over meanwhile", one.lease.id)
            settled += len(some) - len(refused)
        return settled


def decide(job: Job, now: int, make_job: MakeJob) -> Outcome:
    """The outcome of a schedule's job that was taken. Pure, except for the log."""
    try:
        record = read_record(job.data)
        return _tick(job, record, now, make_job)
    except UnreadableSchedule as error:
        log.error("schedule %s is broken and ticks no more: %s", job.key, error)
        return Bury(job.lease, f"{error}; delete it (accoda schedules delete {job.key}) and create it again")
    except DemandQueue as error:  # trying again would not help
        log.error("schedule %s ticks no more: %s", job.key, error)
        return Bury(job.lease, f"{error}: accoda schedules add {job.key} --replace --queue … (or delete it)")
    except Exception as error:  # make_job may run user code: its errors must not stop other schedules
        delay = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(job.tries, 10))
        log.error("schedule %s: its job cannot be made, trying again in %g s: %s", job.key, delay, describe(error))
        return Retry(job.lease, delay=delay, reason=f"its job cannot be made: {describe(error)}")


def _tick(job: Job, record: Record, now: int, make_job: MakeJob) -> Outcome:
    schedule, tick = record.schedule, _tick_of(job, record)
    if record.ended:
        return Done(job.lease)  # kept as done for a week, so that people see it
    if tick is None or not schedule.enabled:
        # A paused one was made ready by hand and goes back; of an enabled one no tick is left.
        return Done(job.lease, [job_of(replace(record, tick=None, over=None, ended=schedule.enabled))])
    if job.start_time < job.created_at and job.start_time < tick == record.tick:
        record, tick = _set_back(job, record, tick)
    found = plan(schedule, record.ticks, tick, now) if tick <= max(now, job.start_time) else Plan((), tick)
    if found.missed:
        _log_missed(record, found)
    last = found.ticks[-1] if found.ticks else record.last
    following = replace(record, tick=found.next, last=last, over=None, ended=found.next is None)
    # The record comes first: on Redis Cluster follow-ups are moved one by one, and it should not be missing for long.
    # Elsewhere all of them are stored at once.
    return Done(job.lease, [job_of(following), *(tick_job(record, one, now, make_job) for one in found.ticks)])


def _tick_of(job: Job, record: Record) -> int | None:
    """The tick that a job stands for.

    A change may have replaced a later job than its writer had looked at; then its tick may have got its job already, if
    it came before the replacement. The replacement happened at the job's start time if that is later than the tick,
    because a start in the past is "now". Ticks before it are left out; the writer has noticed the same and is about to
    write again. (A tick that was taken, settled and replaced within one millisecond would pass for one still to come.)
    """
    if record.tick is None or record.is_certain(job.id) or job.start_time <= record.tick:
        return record.tick
    return record.ticks.after(job.start_time)


def _set_back(job: Job, record: Record, tick: int) -> tuple[Record, int]:
    """A job that starts before it was created: the store's clock was set back, and the start of the job with it.

    The schedule goes on with the first tick from there by the new clock, though by the old one that had been already.
    An interval that began later than that begins there.
    """
    record = replace(record, anchor=min(record.anchor, job.start_time))
    return record, min(tick, record.ticks.after(job.start_time - 1) or tick)


def _log_missed(record: Record, found: Plan) -> None:
    schedule = record.schedule
    if schedule.catch_up == "all":
        log.warning(
            "schedule %s: the newest %d of its missed ticks get a job; older ones are left out (catch_up_limit)",
            schedule.name,
            len(found.ticks),
        )
    else:
        made = "they get one job" if found.ticks and schedule.catch_up == "once" else "they are skipped"
        log.info("schedule %s: ticks since %s were missed; %s", schedule.name, record.tick, made)


async def _finish(work: Awaitable[T], patience: float = 5.0) -> T:
    """Wait for work that a cancel does not interrupt: jobs that were taken are settled, not left to expire."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_tell_failure)  # first: a second cancel may end the wait
        await asyncio.wait([task], timeout=patience)
        task.cancel()
        raise


def _tell_failure(task: asyncio.Future[T]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("the last round of a stopped scheduler failed: %s", error)
