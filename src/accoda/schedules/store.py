"""Stored schedules: create, change, look, delete. Each is a job of the system queue, under its name as the key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from msgspec import Struct
from msgspec.structs import replace

from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.model import Enqueued, JobInfo, State
from accoda.schedules.jobs import MakeJob, job_for
from accoda.schedules.model import QUEUE, AlreadyThere, Schedule, ScheduleView
from accoda.schedules.record import Record, UnreadableSchedule, job_of, read_record
from accoda.schedules.words import in_words
from accoda.storage.protocol import Store

TRIES = 100
"""How often a change that keeps meeting ticks is tried."""
LATE = 10_000
"""Milliseconds after which a tick that nobody has come to is called late."""
_PAGE = 500


class Seen(Struct, frozen=True):
    """What holds the key of a schedule at a moment; without an id, nothing does. A damaged one has no `record`."""

    at: int
    id: int | None = None
    record: Record | None = None


async def create(store: Store, schedule: Schedule) -> ScheduleView:
    """Store a new schedule; `AlreadyThere` if the name is taken."""
    seen = await look(store, schedule.name)
    if seen.id is not None:
        raise AlreadyThere(schedule.name)
    # `keep`: of two that create the same name at the same moment, one is told that it is taken.
    done = (await store.enqueue([job_of(revised(schedule, seen))]))[0]
    if done.what != "created":
        raise AlreadyThere(schedule.name)
    await _forget(store, schedule.name)
    return await get(store, schedule.name)


async def put(store: Store, schedule: Schedule, *, declared: str | None = None) -> ScheduleView:
    """Store a schedule, or change the one of that name."""
    return await change(store, schedule.name, lambda seen: schedule, declared)


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


async def change(
    store: Store, name: str, wanted: Callable[[Seen], Schedule], declared: str | None = None
) -> ScheduleView:
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
        seen = await look(store, name)
        record = revised(wanted(seen), seen)
        if declared is not None:
            record = replace(record, declared=declared)
        done = (await store.enqueue([replace(job_of(record), on_duplicate="replace")]))[0]
        if seen.id is None and done.what == "created":
            await _forget(store, name)
            return await get(store, name)
        if done.id == seen.id:
            return await get(store, name)
    raise Conflict(f"schedule {name!r} ticks too often to be changed: pause the queue {QUEUE}, change it, resume")


def revised(schedule: Schedule, seen: Seen) -> Record:
    """The record of a schedule that is stored over what was seen. Pure."""
    old = seen.record
    same_start = old is not None and (old.schedule.every, old.schedule.starts_at) == (
        schedule.every,
        schedule.starts_at,
    )
    anchor = old.anchor if old is not None and same_start else seen.at
    tick = None
    if schedule.enabled:
        kept = (
            old is not None
            and seen.id is not None
            and old.is_sure(seen.id)
            and _times(old.schedule) == _times(schedule)
        )
        tick = old.tick if old is not None and kept else schedule.ticks(anchor).after(seen.at)
        if tick is None:
            raise InvalidInput("endsAt", f"no tick of {schedule.name!r} is left before it; give a later end, or none")
    return Record(
        schedule=schedule,
        tick=tick,
        anchor=anchor,
        last=None if old is None else old.last,
        over=seen.id,
        declared=None if old is None else old.declared,
    )


async def get(store: Store, name: str) -> ScheduleView:
    """One schedule; `NotFound` if there is none of that name. An ended or broken one is found as well."""
    found = await store.peek(QUEUE, name)
    if found.job is not None:
        return view_of(found.job, found.at)
    async for job in _browse(store, "dead", "done"):
        if job.key == name:
            return view_of(job, found.at)
    raise NotFound("schedule", name, "accoda schedules lists those there are")


async def list_all(store: Store) -> list[ScheduleView]:
    """All schedules by name, with those that are broken or have ended."""
    at = (await store.peek(QUEUE)).at
    found: dict[str, JobInfo] = {}
    # What has ended first, so that a live one of the same name wins. A tick moves a schedule from delayed to ready, to
    # taken and, as a new job, to delayed: so delayed is read again at the end, for those that moved on meanwhile.
    async for job in _browse(store, "done", "dead", "delayed", "ready", "taken", "delayed"):
        found[_name_of(job)] = job
    return [view_of(job, at) for _, job in sorted(found.items())]


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
    schedule = _there(await look(store, name), name)
    return (await store.enqueue([job_for(schedule, None, make_job)]))[0]


async def look(store: Store, name: str) -> Seen:
    """What holds the key of a schedule."""
    found = await store.peek(QUEUE, name)
    if found.job is None:
        return Seen(found.at)
    try:
        return Seen(found.at, found.job.id, read_record(found.job.data))
    except UnreadableSchedule:
        return Seen(found.at, found.job.id)


def view_of(job: JobInfo, at: int) -> ScheduleView:
    """A stored schedule as people see it. Pure."""
    name = _name_of(job)
    try:
        record = read_record(job.data)
    except UnreadableSchedule as error:
        problem = job.reason or str(error)
        return ScheduleView(schedule=None, name=name, state="broken", words="?", at=at, problem=problem, id=job.id)
    going = job.state not in ("dead", "done") and not record.ended
    tick = record.tick if going else None
    return ScheduleView(
        schedule=record.schedule,
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


def _there(seen: Seen, name: str) -> Schedule:
    if seen.id is None:
        raise NotFound("schedule", name, "accoda schedules lists those there are")
    if seen.record is None:
        raise Conflict(f"schedule {name!r} cannot be read; delete it and create it again")
    return seen.record.schedule


def _times(schedule: Schedule) -> tuple[object, ...]:
    """What says when it ticks."""
    return (schedule.cron, schedule.tz, schedule.every, schedule.starts_at, schedule.ends_at, schedule.enabled)


def _name_of(job: JobInfo) -> str:
    return job.key if job.key is not None else f"job {job.id}"
