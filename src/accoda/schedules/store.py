"""Stored schedules: create, change, look up, delete. Each is a job of the system queue, with its name as the key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from accoda.enqueue import QueueSpec
from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.model import ByKey, Cursor, Enqueued, Head, JobInfo, OnDuplicate, Remove, State
from accoda.schedules.model import QUEUE, Schedule, ScheduleView, in_words
from accoda.schedules.record import Record, UnreadableSchedule, job_of, read_record, tick_job
from accoda.schedules.secrets import MISSING, restored, shown
from accoda.schedules.spec import DemandQueue, Host, MakeJob, StoredSpec, check_no_demand, spec_of, stored_spec
from accoda.storage.protocol import Store

TRIES = 100
"""How often a change that keeps meeting ticks is tried."""
LATE = 10_000
"""Milliseconds after which a tick is called late."""
_PAGE = 500


class Current(Struct, frozen=True):
    """What holds the key of a schedule at the moment `at`; without an id, nothing does. A damaged one has no `record`.

    `past` is the record of one of that name that has ended.
    """

    at: int
    id: int | None = None
    record: Record | None = None
    past: Record | None = None


class Origin(Struct, frozen=True):
    """Where a change comes from: the app's spec of the queue, and the fingerprint of the declaration in code."""

    spec: QueueSpec | None = None
    declared: str | None = None


UNKNOWN = Origin()


async def create(store: Store, schedule: Schedule, *, app: Host | None = None) -> ScheduleView:
    """Store a new schedule; `Conflict` if the name is taken.

    If `app` has a handler of its queue, the payload is checked, and how its jobs are made is stored too.
    """
    current = await _look_back(store, schedule.name)
    if current.id is not None:
        raise _taken(schedule.name)
    # Without `replace`: if two create the same name at the same moment, one of them is told that it is taken.
    made = (await store.enqueue([job_of(revised(schedule, current, _origin(app, schedule)))]))[0]
    if made.what != "created":
        raise _taken(schedule.name)
    await _forget(store, schedule.name)
    return await get(store, schedule.name)


async def put(store: Store, schedule: Schedule, *, app: Host | None = None) -> ScheduleView:
    """Store a schedule, or change the one of that name; for `app` see `create`."""
    return await change(store, schedule.name, lambda current: schedule, _origin(app, schedule))


async def pause(store: Store, name: str) -> ScheduleView:
    """Let it not tick until it is resumed."""
    return await _set_enabled(store, name, False)


async def resume(store: Store, name: str) -> ScheduleView:
    """Let it go on with the first tick from now; the ticks of the pause are not made up for."""
    return await _set_enabled(store, name, True)


async def _set_enabled(store: Store, name: str, enabled: bool) -> ScheduleView:
    if _record(await look(store, name), name).schedule.enabled == enabled:
        return await get(store, name)
    return await change(store, name, lambda current: replace(_record(current, name).schedule, enabled=enabled))


async def change(
    store: Store, name: str, wanted: Callable[[Current], Schedule], origin: Origin = UNKNOWN
) -> ScheduleView:
    """Store what `wanted` makes of the present schedule.

    A change that meets a running tick wins: `replace` ends its lease, so that its outcome, with the job and the next
    record, is refused as a whole. The tick is not lost: if the times stay the same, the new record stands for the same
    tick, which is then done by the new rules.

    For that, the tick must not have been done between the look and the replacement, or it would get two jobs. A job
    keeps its id when it is replaced, and every settled tick leaves a job with a new id. So the replacement hit what was
    looked at exactly if the ids are the same; otherwise it is looked at and changed again. A scheduler that takes the
    wrong record before that recognizes it by `over`, and leaves out what may have been done.
    """
    for _ in range(TRIES):
        current = await _look_back(store, name)
        record = revised(wanted(current), current, origin)
        # If there was nothing, nothing is replaced: what another process has created meanwhile is looked at first.
        how: OnDuplicate = "keep" if current.id is None else "replace"
        done = (await store.enqueue([replace(job_of(record), on_duplicate=how)]))[0]
        if current.id is None and done.what == "created":
            await _forget(store, name)
            return await get(store, name)
        if done.id == current.id:
            return await get(store, name)
    raise Conflict(f"schedule {name!r} ticks too often to be changed: pause the queue {QUEUE}, change it, resume")


def revised(schedule: Schedule, current: Current, origin: Origin = UNKNOWN) -> Record:
    """The record of a schedule that replaces the current one. Pure."""
    old = current.record
    before = old or current.past
    secret = _secret(before, origin)
    payload = restored(schedule.payload, MISSING if before is None else before.schedule.payload, secret)
    if payload is not schedule.payload:
        schedule = replace(schedule, payload=payload)
    anchor = current.at if old is None or _start(old.schedule) != _start(schedule) else old.anchor
    tick = None
    if schedule.enabled:
        same = old is not None and _times(old.schedule) == _times(schedule)
        keeps = old is not None and same and old.is_certain(current.id)
        tick = old.tick if old is not None and keeps else schedule.ticks(anchor).after(current.at)
        if tick is None:
            raise InvalidInput("endsAt", f"no tick of {schedule.name!r} is left before it; give a later end, or none")
    return Record(
        schedule=schedule,
        tick=tick,
        anchor=anchor,
        last=None if old is None else old.last,
        over=current.id,
        declared=origin.declared if origin.declared is not None or old is None else old.declared,
        spec=_inherited(schedule, old) if origin.spec is None else stored_spec(origin.spec, schedule),
        secret=secret,
    )


def _secret(old: Record | None, origin: Origin) -> tuple[str, ...]:
    """The secret fields. Only a declaration can remove one: a schedule that is changed by an app without the handler,
    or moved to another queue, must not show what was hidden."""
    new = () if origin.spec is None else origin.spec.secret
    before = () if old is None or origin.declared is not None else old.secret
    return tuple(dict.fromkeys((*before, *new)))


def _inherited(schedule: Schedule, old: Record | None) -> StoredSpec | None:
    """The spec of a schedule that is changed by an app that does not know its queue."""
    if old is None or old.spec is None or old.schedule.queue != schedule.queue:
        return None
    if old.spec.data is not None and old.schedule.payload != schedule.payload:
        raise Conflict(
            f"the payload of schedule {schedule.name!r} has a format of its handler's; change it through an app "
            f"that has a handler of {schedule.queue!r} (on the command line: --app MODULE:APP)"
        )
    return old.spec


async def get(store: Store, name: str, *, secrets: bool = False) -> ScheduleView:
    """One schedule, ended or broken ones included; `NotFound` if there is none of that name.

    With `secrets` nothing of its payload is hidden.
    """
    found = await store.look(ByKey(QUEUE, name))
    if found.job is not None:
        return view_of(found.job, found.at, secrets)
    async for job in _browse(store, "dead", "done"):
        if job.key == name:
            return view_of(job, found.at, secrets)
    raise NotFound("schedule", name, "accoda schedules lists those there are")


async def list_all(store: Store, *, secrets: bool = False) -> list[ScheduleView]:
    """All schedules by name, ended or broken ones included. For `secrets` see `get`."""
    at = (await store.look(Head(QUEUE))).at
    found: dict[str, JobInfo] = {}
    # Ended ones first, so that a live one of the same name wins. A tick moves a schedule from delayed to ready, to
    # taken and, as a new job, to delayed: so delayed is read again at the end, for those that moved on meanwhile.
    async for job in _browse(store, "done", "dead", "delayed", "ready", "taken", "delayed"):
        found[_name_of(job)] = job
    return [view_of(job, at, secrets) for _, job in sorted(found.items())]


async def delete(store: Store, name: str) -> bool:
    """Remove a schedule; False if there is none of that name. Jobs that it made stay."""
    gone = False
    # The fence refuses the removal if the job has ended meanwhile: a tick was settled, and the next job holds the key
    # now. Once it is applied, the lease of a running tick is lost, so that nothing brings the schedule back.
    while not gone and (job := (await store.look(ByKey(QUEUE, name))).job) is not None:
        gone = await store.change([Remove(job.id, job.waiters, QUEUE)]) > 0
    return await _forget(store, name) > 0 or gone


async def trigger(store: Store, make_job: MakeJob, name: str) -> Enqueued:
    """Enqueue a schedule's job now. Its overlap policy applies, and nothing else changes."""
    current = await look(store, name)
    try:
        job = tick_job(_record(current, name), None, current.at, make_job)
    except DemandQueue as error:
        raise Conflict(f"schedule {name!r} makes no jobs: {error}") from error
    return (await store.enqueue([job]))[0]


async def look(store: Store, name: str) -> Current:
    """What holds the key of a schedule."""
    found = await store.look(ByKey(QUEUE, name))
    if found.job is None:
        return Current(found.at)
    try:
        return Current(found.at, found.job.id, read_record(found.job.data))
    except UnreadableSchedule:
        return Current(found.at, found.job.id)


async def _look_back(store: Store, name: str) -> Current:
    """The same, and the record of one that has ended: its secrets are still hidden, and may be sent back so."""
    current = await look(store, name)
    if current.record is not None:
        return current
    async for job in _browse(store, "dead", "done"):
        if job.key == name:
            with suppress(UnreadableSchedule):
                return replace(current, past=read_record(job.data))
    return current


def view_of(job: JobInfo, at: int, secrets: bool = False) -> ScheduleView:
    """A stored schedule as people see it. Pure."""
    name = _name_of(job)
    try:
        record = read_record(job.data)
    except UnreadableSchedule as error:
        problem = job.reason or str(error)
        return ScheduleView(schedule=None, name=name, state="broken", words="?", at=at, problem=problem, id=job.id)
    live = job.state not in ("dead", "done") and not record.ended
    tick = record.tick if live else None
    schedule = record.schedule
    if record.secret and not secrets:
        schedule = replace(schedule, payload=shown(schedule.payload, record.secret))
    return ScheduleView(
        schedule=schedule,
        name=name,
        state="broken" if job.state == "dead" else "ended" if not live else "paused" if tick is None else "active",
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
    """Remove broken and ended schedules of that name."""
    old = [Remove(job.id, queue=QUEUE) async for job in _browse(store, "dead", "done") if job.key == name]
    return await store.change(old) if old else 0


async def _browse(store: Store, *states: State) -> AsyncIterator[JobInfo]:
    for state in states:
        after: Cursor | None = None
        while page := await store.browse(QUEUE, state, order="id", after=after, limit=_PAGE):
            for job in page:
                yield job
            after = page[-1].cursor("id")


def _origin(app: Host | None, schedule: Schedule) -> Origin:
    check_no_demand(app, schedule.queue)
    return Origin(spec_of(app, schedule.queue, schedule.type))


def _record(current: Current, name: str) -> Record:
    if current.id is None:
        raise NotFound("schedule", name, "accoda schedules lists those there are")
    if current.record is None:
        raise Conflict(f"schedule {name!r} cannot be read; delete it and create it again")
    return current.record


def _taken(name: str) -> Conflict:
    return Conflict(f"there is a schedule {name!r} already; change it, or delete it first")


def _start(schedule: Schedule) -> tuple[object, ...]:
    """What determines where an interval starts."""
    return (schedule.every, schedule.starts_at)


def _times(schedule: Schedule) -> tuple[object, ...]:
    """What determines when it ticks."""
    return (schedule.cron, schedule.tz, schedule.every, schedule.starts_at, schedule.ends_at, schedule.enabled)


def _name_of(job: JobInfo) -> str:
    return job.key if job.key is not None else f"job {job.id}"
