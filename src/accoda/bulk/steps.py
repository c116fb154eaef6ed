"""The steps of a bulk change: what is done now, and what is planned for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from accoda import errands
from accoda.bulk.acting import Did, Planned, act
from accoda.errands import Errands
from accoda.errors import AccodaError
from accoda.limits import MOMENT
from accoda.model import STATES, JobInfo, State
from accoda.replays.places import Place
from accoda.search import JobFilter, Search, Where, matcher
from accoda.shown.levels import Level, new_rank
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App

QUEUE = "accoda.bulk"
PREFIX = "bulk/"
AT_ONCE = 500
"""Jobs of one step: their names are the step's data, and no store stands still for them."""

Action = Literal["retry", "cancel", "delete", "priority"]

_STATES: dict[Action, tuple[State, ...]] = {
    "retry": ("delayed", "dead"),
    "cancel": ("ready", "delayed", "taken"),
    "delete": STATES,
    "priority": ("ready", "delayed"),
}


class Bulk(errands.Step, frozen=True, kw_only=True):
    """The data of a bulk change's job. `looked`: it was looked for jobs, so `at` None means that there are no more."""

    action: Action
    filter: JobFilter
    level: Level | None = None
    who: str = ""
    planned: tuple[Planned, ...] = ()
    at: Place | None = None
    looked: bool = False
    looked_at: int = 0
    matched: int = 0
    did: Did = Did()


BULKS = Errands("bulk", QUEUE, PREFIX, Bulk)


def action_states(action: Action) -> tuple[State, ...]:
    """The states in which a job can be acted on like that."""
    return _STATES[action]


def where_of(app: App, filter: JobFilter, states: Sequence[State], until: int = MOMENT) -> Where:
    """Where to look for the jobs that fit. What was created, or has died, at `until` or later is not meant."""
    fits = matcher(app, filter)

    def meant(job: JobInfo) -> bool:
        return (job.ended_at or 0) < until and (fits is None or fits(job))

    asked = [state for state in states if filter.state in (None, state)]
    check = meant if until < MOMENT and ("dead" in asked or "done" in asked) else fits
    return Where(queue=filter.queue, states=asked, system=filter.system, fits=check, key=filter.key, until=until)


async def advance(app: App, store: Store, step: Bulk, again: bool) -> Bulk:
    """Do what is planned, and plan what comes next."""
    did = step.did.plus(await act(store, step.action, step.planned, again))
    if step.looked and step.at is None:
        return replace(step, planned=(), did=did, status="finished")
    # The end of the millisecond in which it began, so that what came in it is meant too.
    where = where_of(app, step.filter, action_states(step.action), step.started_at + 1)
    found = await Search(store, where, AT_ONCE).run(step.at)
    planned = [plan for job in found.jobs if (plan := _planned(app, job, step)) is not None]
    after = replace(
        step,
        planned=tuple(planned),
        at=found.next,
        looked=True,
        looked_at=step.looked_at + found.looked_at,
        matched=step.matched + len(found.jobs),
        did=did.plus(Did(skipped=len(found.jobs) - len(planned))),
    )
    return after if planned or found.next is not None else replace(after, status="finished")


def _planned(app: App, job: JobInfo, step: Bulk) -> Planned | None:
    """What is to be done with a job; None: nothing, because it has that level already, or can have none."""
    rank = job.rank
    if step.level is not None:
        try:
            rank = new_rank(app, job, step.level)
        except AccodaError:  # it is of a demand, whose ranks follow from who waits
            return None
        if rank == job.rank:
            return None
    return Planned(job.queue, job.id, job.attempts, job.state, job.waiters, rank)
