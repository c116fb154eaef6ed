"""Stored schedules: create, change, look, delete. Each is a job of the system queue, under its name as the key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from accoda.enqueue import Line
from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.model import Enqueued, JobInfo, OnDuplicate, State
from accoda.schedules.jobs import MakeJob, job_for
from accoda.schedules.model import QUEUE, AlreadyThere, Schedule, ScheduleView
from accoda.schedules.record import Record, UnreadableSchedule, job_of, read_record
from accoda.schedules.secrets import MISSING, kept, shown
from accoda.schedules.terms import OfDemand, Terms, check_queue_of_jobs, line_of, terms_from
from accoda.schedules.words import in_words
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App

TRIES = 100
"""How often a change that keeps meeting ticks is tried."""
LATE = 10_000
"""Milliseconds after which a tick that nobody has come to is called late."""
_PAGE = 500


class Seen(Struct, frozen=True):
    """What holds the key of a schedule at a moment; without an id, nothing does. A damaged one has no `record`.

    `past` is what is left of one of that name that has ended.
    """

    at: int
    id: int | None = None
    record: Record | None = None
    past: Record | None = None


class Known(Struct, frozen=True):
    """What its writer knows beside the schedule: of its queue, and the mark of the declaration that it comes from."""

    line: Line | None = None
    declared: str | None = None


NOTHING = Known()


async def create(store: Store, schedule: Schedule, *, app: App | None = None) -> ScheduleView:
    """Store a new schedule; `AlreadyThere` if the name is taken.

    If `app` has a handler of its queue, what that says of its jobs is stored too, and the payload is checked.
    """
    seen = await _look_back(store, schedule.name)
    if seen.id is not None:
        raise AlreadyThere(schedule.name)
    # `keep`: of two that create the same name at the same moment, one is told that it is taken.
    done = (await store.enqueue([job_of(revised(schedule, seen, _known(app, schedule)))]))[0]
    if done.what != "created":
        raise AlreadyThere(schedule.name)
    await _forget(store, schedule.name)
    return await get(store, schedule.name)


async def put(store: Store, schedule: Schedule, *, app: App | None = None) -> ScheduleView:
    """Store a schedule, or change the one of that name; for `app` see `create`."""
    return await change(store, schedule.name, lambda seen: schedule, _known(app, schedule))


async def set_enabled(store: Store, name: str, enabled: bool) -> ScheduleView:
    """Pause a schedule, or let it go on with the first tick from now: what came due in between is not made up for."""

    def wanted(seen: Seen) -> Schedule:
        return replace(_there(seen, name), enabled=enabled)

    seen = await look(store, name)
    if _there(seen, name).enabled == enabled:
        return await get(store, name)
    return await change(store, name, wanted)


async def pause(store: Store, name: str) -> ScheduleView:
    """Let no tick come until `resume`."""
    return await set_enabled(store, name, False)


async def resume(store: Store, name: str) -> ScheduleView:
    """End a pause."""
    return await set_enabled(store, name, True)


async def change(store: Store, name: str, wanted: Callable[[Seen], Schedule], known: Known = NOTHING) -> ScheduleView:
    """Store what `wanted` says of what is there.

    A change that meets a running tick wins: `replace` ends its lease, so that its outcome, with the job and the next
    record, is refused as a whole. The tick itself is not lost by that: where the times stay the same, the new record
    stands for the same tick, which is then done anew by the new rules.

    For that, the tick must not have been done between the look and the replacement, or it would get two jobs. A job
    keeps its id when it is replaced, and every tick that is settled leaves a job with a new id. So the replacement hit
    what was looked at exactly if the ids are the same; otherwise it is looked at and changed again. Should a scheduler
    come to the wrong record before that, it sees the same from `over`, and leaves out what may have been done.
    """
    for _ in range(TRIES):
        seen = await _look_back(store, name)
        record = revised(wanted(seen), seen, known)
        # Where nothing was, nothing is replaced: what somebody else has created meanwhile is looked at first.
        how: OnDuplicate = "keep" if seen.id is None else "replace"
        done = (await store.enqueue([replace(job_of(record), on_duplicate=how)]))[0]
        if seen.id is None and done.what == "created":
            await _forget(store, name)
            return await get(store, name)
        if done.id == seen.id:
            return await get(store, name)
    raise Conflict(f"schedule {name!r} ticks too often to be changed: pause the queue {QUEUE}, change it, resume")


def revised(schedule: Schedule, seen: Seen, known: Known = NOTHING) -> Record:
    """The record of a schedule that is stored over what was seen. Pure."""
    old = seen.record
    before = old or seen.past
    secret = _secret(before, known)
    payload = kept(schedule.payload, MISSING if before is None else before.schedule.payload, secret)
    if payload is not schedule.payload:
        schedule = replace(schedule, payload=payload)
    anchor = seen.at if old is None or _start(old.schedule) != _start(schedule) else old.anchor
    tick = None
    if schedule.enabled:
        same = old is not None and _times(old.schedule) == _times(schedule)
        keeps = old is not None and same and old.is_sure(seen.id)
        tick = old.tick if old is not None and keeps else schedule.ticks(anchor).after(seen.at)
        if tick is None:
            raise InvalidInput("endsAt", f"no tick of {schedule.name!r} is left before it; give a later end, or none")
    return Record(
        schedule=schedule,
        tick=tick,
        anchor=anchor,
        last=None if old is None else old.last,
        over=seen.id,
        declared=known.declared if known.declared is not None or old is None else old.declared,
        terms=_inherited(schedule, old) if known.line is None else terms_from(known.line, schedule),
        secret=secret,
    )


def _secret(old: Record | None, known: Known) -> tuple[str, ...]:
    """The names of secret fields. Only a declaration takes one back: a schedule that is changed by an app without the
    handler, or moved to another queue, must not show what was hidden."""
    told = () if known.line is None else known.line.secret
    before = () if old is None or known.declared is not None else old.secret
    return tuple(dict.fromkeys((*before, *told)))


def _inherited(schedule: Schedule, old: Record | None) -> Terms | None:
    """The terms of a schedule that is changed by somebody who does not know its queue."""
    if old is None or old.terms is None or old.schedule.queue != schedule.queue:
        return None
    if old.terms.data is not None and old.schedule.payload != schedule.payload:
        raise Conflict(
            f"the payload of schedule {schedule.name!r} is written in a way of its handler's; change it through an app "
            f"that has a handler of {schedule.queue!r} (on the command line: --app MODULE:APP)"
        )
    return old.terms


async def get(store: Store, name: str, *, secrets: bool = False) -> ScheduleView:
    """One schedule; `NotFound` if there is none of that name. An ended or broken one is found as well.

    With `secrets` nothing of its payload is hidden.
    """
    found = await store.peek(QUEUE, name)
    if found.job is not None:
        return view_of(found.job, found.at, secrets)
    async for job in _browse(store, "dead", "done"):
        if job.key == name:
            return view_of(job, found.at, secrets)
    raise NotFound("schedule", name, "accoda schedules lists those there are")


async def list_all(store: Store, *, secrets: bool = False) -> list[ScheduleView]:
    """All schedules by name, with those that are broken or have ended. For `secrets` see `get`."""
    at = (await store.peek(QUEUE)).at
    found: dict[str, JobInfo] = {}
    # What has ended first, so that a live one of the same name wins. A tick moves a schedule from delayed to ready, to
    # taken and, as a new job, to delayed: so delayed is read again at the end, for those that moved on meanwhile.
    async for job in _browse(store, "done", "dead", "delayed", "ready", "taken", "delayed"):
        found[_name_of(job)] = job
    return [view_of(job, at, secrets) for _, job in sorted(found.items())]


async def delete(store: Store, name: str) -> bool:
    """Remove a schedule; False: there is none of that name. Jobs that it made stay."""
    gone = False
    # A drop is refused if the job has ended meanwhile: a tick was settled, and the next job holds the key now. Once a
    # drop was applied, the lease of a running tick is lost, so that nothing brings the schedule back.
    while not gone and (job := (await store.peek(QUEUE, name)).job) is not None:
        gone = await store.drop(QUEUE, job.id, job.waiters)
    return await _forget(store, name) > 0 or gone


async def trigger(store: Store, make_job: MakeJob, name: str) -> Enqueued:
    """Enqueue a schedule's job now. Nothing else changes; its overlap policy holds."""
    seen = await look(store, name)
    try:
        job = job_for(_record(seen, name), None, seen.at, make_job)
    except OfDemand as error:
        raise Conflict(f"schedule {name!r} makes no jobs: {error}") from error
    return (await store.enqueue([job]))[0]


async def look(store: Store, name: str) -> Seen:
    """What holds the key of a schedule."""
    found = await store.peek(QUEUE, name)
    if found.job is None:
        return Seen(found.at)
    try:
        return Seen(found.at, found.job.id, read_record(found.job.data))
    except UnreadableSchedule:
        return Seen(found.at, found.job.id)


async def _look_back(store: Store, name: str) -> Seen:
    """The same, and what is left of one that has ended: its secrets are still hidden, and may be sent back so."""
    seen = await look(store, name)
    if seen.record is not None:
        return seen
    async for job in _browse(store, "dead", "done"):
        if job.key == name:
            with suppress(UnreadableSchedule):
                return replace(seen, past=read_record(job.data))
    return seen


def view_of(job: JobInfo, at: int, secrets: bool = False) -> ScheduleView:
    """A stored schedule as people see it. Pure."""
    name = _name_of(job)
    try:
        record = read_record(job.data)
    except UnreadableSchedule as error:
        problem = job.reason or str(error)
        return ScheduleView(schedule=None, name=name, state="broken", words="?", at=at, problem=problem, id=job.id)
    going = job.state not in ("dead", "done") and not record.ended
    tick = record.tick if going else None
    schedule = record.schedule
    if record.secret and not secrets:
        schedule = replace(schedule, payload=shown(schedule.payload, record.secret))
    return ScheduleView(
        schedule=schedule,
        name=name,
        state="broken" if job.state == "dead" else "ended" if not going else "paused" if tick is None else "active",
        words=in_words(record.schedule),
        at=at,
        next_at=tick,
        last_at=record.last,
        late=tick is not None and job.state == "ready" and at - tick > LATE,
        problem=job.reason or None,
        id=job.id,
        anchor=record.anchor,
        secret=record.secret,
    )


async def _forget(store: Store, name: str) -> int:
    """Remove what is left of broken and ended schedules of that name."""
    ids = [job.id async for job in _browse(store, "dead", "done") if job.key == name]
    return await store.remove(ids) if ids else 0


async def _browse(store: Store, *states: State) -> AsyncIterator[JobInfo]:
    for state in states:
        after: int | None = None
        while page := await store.browse(QUEUE, state, after, _PAGE):
            for job in page:
                yield job
            after = page[-1].id


def _known(app: App | None, schedule: Schedule) -> Known:
    check_queue_of_jobs(app, schedule.queue)
    return NOTHING if app is None else Known(line_of(app, schedule.queue))


def _there(seen: Seen, name: str) -> Schedule:
    return _record(seen, name).schedule


def _record(seen: Seen, name: str) -> Record:
    if seen.id is None:
        raise NotFound("schedule", name, "accoda schedules lists those there are")
    if seen.record is None:
        raise Conflict(f"schedule {name!r} cannot be read; delete it and create it again")
    return seen.record


def _start(schedule: Schedule) -> tuple[object, ...]:
    """What says where an interval is counted from."""
    return (schedule.every, schedule.starts_at)


def _times(schedule: Schedule) -> tuple[object, ...]:
    """What says when it ticks."""
    return (schedule.cron, schedule.tz, schedule.every, schedule.starts_at, schedule.ends_at, schedule.enabled)


def _name_of(job: JobInfo) -> str:
    return job.key if job.key is not None else f"job {job.id}"
