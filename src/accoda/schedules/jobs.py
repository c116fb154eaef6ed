"""The user's job of a tick. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from accoda.enqueue import EnqueueOptions, new_job
from accoda.envelope import unwrap, wrap
from accoda.model import NewJob
from accoda.priority import Priority
from accoda.schedules.record import Record
from accoda.schedules.terms import check_queue_of_jobs, line_from

if TYPE_CHECKING:
    from accoda.app import App

MakeJob = Callable[[str, object, EnqueueOptions], NewJob]
"""What `maker_of` gives: it knows the handler of the queue, its type, policy and cost."""


def maker_of(app: App) -> MakeJob:
    """How an app makes the jobs of schedules. `OfDemand`: they have no meaning in that queue."""

    def make(queue: str, payload: object, options: EnqueueOptions) -> NewJob:
        check_queue_of_jobs(app, queue)
        return app.new_job(queue, payload, options)

    return make


def overlap_key(name: str) -> str:
    """The key that the jobs of a schedule share, where they must not overlap."""
    return f"schedule/{name}"


def job_for(record: Record, tick: int | None, now: int, make_job: MakeJob) -> NewJob:
    """The job of one tick that is done `now`; without a tick, one that somebody asked for.

    What is stored with the schedule says how it is made. `make_job` does where nobody who knows the queue told.
    """
    schedule = record.schedule
    options: EnqueueOptions = {"priority": Priority[schedule.priority]}
    if schedule.cost is not None:
        options["cost"] = schedule.cost
    if schedule.keep_for is not None:
        options["keep_for"] = float(schedule.keep_for)
    if schedule.overlap != "allow":
        options["key"] = overlap_key(schedule.name)
        options["on_duplicate"] = "keep" if schedule.overlap == "skip" else "replace"
    if record.terms is not None:
        job = new_job(line_from(schedule.queue, record.terms), schedule.payload, now, options)
    else:
        job = make_job(schedule.queue, schedule.payload, options)
    theirs, payload = unwrap(job.data)  # the handler may have said something of its jobs, such as what is secret
    ours = schedule.extras
    extras = replace(
        theirs,
        name=ours.name if ours.name is not None else theirs.name,
        max_attempts=ours.max_attempts if ours.max_attempts is not None else theirs.max_attempts,
        hook=ours.hook if ours.hook is not None else theirs.hook,
        secret=tuple(dict.fromkeys((*theirs.secret, *record.secret))),
        schedule=schedule.name,
        tick=tick,
    )
    return replace(job, data=wrap(payload, extras))
