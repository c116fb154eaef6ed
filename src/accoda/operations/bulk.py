"""One action on all jobs that match a filter, step by step, through crashes: start, watch and stop it.

A replay of dead letters is a bulk change too: `retry` with the state `dead`, perhaps with a rate.

A bulk change is a job of `accoda.bulk`, see `accoda.operations.step_jobs`. Each step does what the step before has
planned, and plans the next. A plan names each job with its attempts, which grow whenever it comes back: so a step that
is repeated after a crash knows which of its jobs were changed already, and does nothing to them a second time.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from accoda.errors import AccodaError, InvalidInput
from accoda.model import STATES, ById, Cancel, Change, JobInfo, Remove, Rerank, Revive, StartNow, State, clean
from accoda.names import is_system
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.host import Host
from accoda.operations.job_filter import JobFilter, check_filter
from accoda.operations.levels import LEVELS, Level, new_rank
from accoda.operations.moments import now_of, rfc3339
from accoda.operations.search import Search, SearchCursor, where_of
from accoda.operations.step_jobs import LEASE, Step, StepJobs, StepRunner, StepStatus
from accoda.operations.views import same
from accoda.storage.protocol import Store

QUEUE = "accoda.bulk"
AT_ONCE = 500
"""Jobs of one step: their plan is the step's data, and the store must not stall for them."""
MOST_AT_ONCE = 1000
"""Jobs of one step with a rate, however high."""
FASTEST = 10_000.0
LOOKS_AT_ONCE = 50
COUNTED = 20_000
"""Jobs that are examined to count those that match."""
PARTS = 20
"""Parts of a search that are made for a count: of thousands of queues not all are searched."""

Action = Literal["retry", "cancel", "delete", "priority"]

ACTION_STATES: dict[Action, tuple[State, ...]] = {
    "retry": ("delayed", "dead"),
    "cancel": ("ready", "delayed", "held", "taken"),
    "delete": STATES,
    "priority": ("ready", "delayed", "held"),
}
"""The states in which a job can be changed like that."""
KEPT: tuple[State, ...] = ("done", "cancelled")
"""The states whose counters count events: how many jobs are in them now is not counted."""


class PlannedChange(Struct, frozen=True, array_like=True):
    """A job as it was when it was planned. `rank` is its new one."""

    id: int
    attempts: int
    state: State
    waiters: int
    rank: float

    def change(self, action: Action) -> Change:
        match action:
            case "retry":
                return Revive(self.id) if self.state == "dead" else StartNow(self.id)
            case "cancel":  # fenced: spares what has more waiters than were seen
                return Cancel(self.id, waiters=self.waiters)
            case "delete":
                return Remove(self.id)
            case "priority":
                return Rerank(self.id, self.rank)


class BulkStep(Step, frozen=True, kw_only=True):
    """The data of a bulk change's job: what is wanted, what to do now, where to continue, what is done."""

    action: Action
    filter: JobFilter
    level: Level | None = None
    rate: float | None = None
    who: str = ""
    plan: tuple[PlannedChange, ...] = ()
    at: SearchCursor | None = None
    planned: bool = False
    looked_at: int = 0
    matched: int = 0
    changed: int = 0
    skipped: int = 0


class BulkView(Struct, rename="camel", frozen=True, kw_only=True):
    """A bulk change, of at most `rate` jobs a second. Of the jobs `looked_at`, so many `matched` the filter; of these,
    some were `changed`, the others `skipped`: they are as wanted already, gone, of a demand, or another job holds
    their key."""

    id: str
    action: Action
    level: Level | None = None
    rate: float | None = None
    filter: JobFilter
    who: str = ""
    state: StepStatus
    looked_at: int = 0
    matched: int = 0
    changed: int = 0
    skipped: int = 0
    started_at: str
    ended_at: str | None = None

    @classmethod
    def of(cls, id: str, step: BulkStep) -> BulkView:
        return cls(
            **same(step, "action level rate filter who looked_at matched changed skipped"),
            id=id,
            state=step.status,
            started_at=rfc3339(step.started_at),
            ended_at=rfc3339(step.ended_at),
        )


class Count(Struct, frozen=True):
    """How many jobs match. Not `exact`: there are at least so many."""

    n: int
    exact: bool


BULKS = StepJobs("bulk", QUEUE, "bulk/", BulkStep)


async def start(
    host: Host,
    action: Action,
    filter: JobFilter,
    *,
    level: Level | None = None,
    rate: float | None = None,
    who: str = "",
) -> BulkView:
    """Begin to change all jobs that match and are there now. Any worker or service does the steps.

    `retry` makes dead jobs ready again and starts delayed ones now; `cancel` takes back what waits or runs; `delete`
    deletes in any state; `priority` gives waiting jobs another `level`. Jobs in other states are left out.
    """
    check(action, filter, level, rate)
    store = await host.connections.get()
    now = await now_of(store, QUEUE)
    step = BulkStep(action=action, level=level, rate=rate, filter=filter, who=clean(who)[:200], started_at=now)
    return BulkView.of(await BULKS.start(store, step), step)


async def run(
    host: Host,
    action: Action,
    filter: JobFilter,
    *,
    rate: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> BulkView:
    """The steps of `start`, done here and now; `progress` is told how many jobs so far."""
    check(action, filter, None, rate)
    store = await host.connections.get()
    step = BulkStep(action=action, rate=rate, filter=filter, started_at=await now_of(store))
    while step.status == "running":
        step = await advance(host, store, step, again=False)
        if progress is not None:
            progress(step.changed + step.skipped)
        await asyncio.sleep(pause_after(step))
    return BulkView.of("", step)


async def get(host: Host, id: str) -> BulkView:
    """How far one is, or how it ended; those that have ended are remembered for a week."""
    return BulkView.of(id, await BULKS.find(await host.connections.get(), id))


async def list(host: Host) -> builtins.list[BulkView]:
    """Those that run, and those that have ended in the last week; the latest first."""
    return [BulkView.of(id, step) for id, step in await BULKS.all(await host.connections.get())]


async def stop(host: Host, id: str) -> BulkView:
    """End one early. What is done stays done; the step that runs now may still finish."""
    return BulkView.of(id, await BULKS.stop(await host.connections.get(), id))


async def count(host: Host, filter: JobFilter, action: Action | None = None, most: int = COUNTED) -> Count:
    """How many jobs match (and are in a state for the action, if given), of the first `most` that are examined.

    For a queue and a state alone the counters tell, however many there are; but not how many done or cancelled jobs
    are kept.
    """
    store = await host.connections.get()
    where, n = where_of(host, filter, STATES if action is None else ACTION_STATES[action]), 0
    if not where.selects:
        counted = [state for state in where.states if state not in KEPT]
        stats = (await store.stats()).queues
        hidden = frozenset() if filter.queue or filter.system else await bookkeeping(store, stats)
        names = [filter.queue] if filter.queue else [name for name in stats if name not in hidden]
        n = sum(getattr(stats[name], state) for name in names if name in stats for state in counted)
        where = replace(where, states=[state for state in where.states if state in KEPT])
    examined, at = 0, None
    for _ in range(PARTS):
        part = await Search(store, where, most).run(at)
        n, examined, at = n + len(part.jobs), examined + part.examined, part.next
        if at is None or examined >= most:
            break
    return Count(n, at is None)


def check(action: Action, filter: JobFilter, level: Level | None = None, rate: float | None = None) -> None:
    """Refuse what cannot be meant, naming the field that is wrong: every job of all queues, or system jobs that are
    not dead."""
    if action not in get_args(Action):
        raise InvalidInput("action", f"must be one of {', '.join(get_args(Action))}, not {action!r:.60}")
    if (level is not None) != (action == "priority") or (level is not None and level not in LEVELS):
        raise InvalidInput("level", f"must be one of {', '.join(LEVELS)} for priority, and is for nothing else")
    number = isinstance(rate, (int, float)) and not isinstance(rate, bool) and isfinite(rate)
    if rate is not None and not (number and 0.001 <= rate <= FASTEST):
        raise InvalidInput("rate", f"must be jobs a second, from 0.001 to {FASTEST:,.0f}, not {rate!r:.60}")
    check_filter(filter)
    if filter == JobFilter(system=filter.system):
        raise InvalidInput("filter", "is empty, which would mean every job; name a queue, a state or what jobs have")
    system = filter.system or (filter.queue is not None and is_system(filter.queue))
    if system and not (filter.state == "dead" and action in ("retry", "delete")):
        field = "system" if filter.system else "queue"
        raise InvalidInput(field, "of system queues only dead jobs are changed in bulk, by retry or delete")
    if filter.state is not None and filter.state not in ACTION_STATES[action]:
        able = ", ".join(ACTION_STATES[action])
        raise InvalidInput("state", f"{action} is for jobs that are {able}, not {filter.state}")


def bulk_runner(host: Host, *, lease: float = LEASE) -> StepRunner[BulkStep]:
    """The system job of `accoda.bulk`. The host knows what its handlers say of payloads, levels and secrets."""

    async def step(store: Store, step: BulkStep, again: bool) -> BulkStep:
        return await advance(host, store, step, again)

    return StepRunner(BULKS, step, pause_after, lease=lease)


async def advance(host: Host, store: Store, step: BulkStep, again: bool) -> BulkStep:
    """Do what is planned, and plan what comes next."""
    changed = await _act(store, step.action, step.plan, again)
    step = replace(step, plan=(), changed=step.changed + changed, skipped=step.skipped + len(step.plan) - changed)
    if step.planned and step.at is None:
        return replace(step, status="finished")
    # The end of the millisecond in which it began, so that jobs created in it are included.
    where = where_of(host, step.filter, ACTION_STATES[step.action], until=step.started_at + 1)
    # By id each job is met once: one that could not be revived, or has died again, is not met again.
    found = await Search(store, where, _share(step.rate)).run(step.at)
    plan = tuple(each for job in found.jobs if (each := _plan(host, job, step)) is not None)
    after = replace(
        step,
        plan=plan,
        at=found.next,
        planned=True,
        looked_at=step.looked_at + found.examined,
        matched=step.matched + len(found.jobs),
        skipped=step.skipped + len(found.jobs) - len(plan),
    )
    return after if plan or found.next is not None else replace(after, status="finished")


def pause_after(step: BulkStep) -> float:
    """Seconds from one step to the next, to keep the rate: usually a second."""
    return 0.0 if step.rate is None or not step.plan else _share(step.rate) / step.rate


def _share(rate: float | None) -> int:
    """The jobs of one step: a second's worth, up to a limit."""
    return AT_ONCE if rate is None else max(1, min(MOST_AT_ONCE, int(rate)))


def _plan(host: Host, job: JobInfo, step: BulkStep) -> PlannedChange | None:
    """What is to be done with a job; None: nothing, because it has that level already, or can have none."""
    rank = job.rank
    if step.level is not None:
        try:
            rank = new_rank(host, job, step.level)
        except AccodaError:  # it belongs to a demand, which ranks it by its waiters
            return None
        if rank == job.rank:
            return None
    return PlannedChange(job.id, job.attempts, job.state, job.waiters, rank)


async def _act(store: Store, action: Action, plan: Sequence[PlannedChange], again: bool) -> int:
    """Change all of them; how many were changed. `again`: it was begun before, and how far that came is not known."""
    left = await _untouched(store, plan) if again else plan
    changed = await store.change([each.change(action) for each in left]) if left else 0
    if again and action == "priority":  # the ranks may be right since the first time
        return len(plan)
    return len(plan) - len(left) + changed


async def _untouched(store: Store, plan: Sequence[PlannedChange]) -> builtins.list[PlannedChange]:
    """Those that are still as they were planned. The others count as changed by the try before: they are gone, in
    another state, or came back since. So nothing is revived twice that has died again in between."""
    left: builtins.list[PlannedChange] = []
    for first in range(0, len(plan), LOOKS_AT_ONCE):
        some = plan[first : first + LOOKS_AT_ONCE]
        looks = await asyncio.gather(*(store.look(ById(each.id)) for each in some))
        for each, look in zip(some, looks, strict=True):
            if look.job is not None and (look.job.attempts, look.job.state) == (each.attempts, each.state):
                left.append(each)
    return left
