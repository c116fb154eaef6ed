"""A schedule as it is stored, and the jobs of its ticks. Pure.

A schedule is a job of the system queue, with its name as the key and its next tick as the start time. Its record holds
everything that is known of it, so the step that settles a tick, `Done(lease, then=[the jobs, the next record])`, is the
only one that has to be atomic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.enqueue import EnqueueOptions, new_job
from accoda.envelope import unwrap, wrap
from accoda.errors import InvalidInput
from accoda.model import NewJob
from accoda.priority import Priority
from accoda.schedules.model import QUEUE, Schedule, names_on_the_wire, read_schedule
from accoda.schedules.spec import MakeJob, StoredSpec, restored_spec
from accoda.schedules.ticks import NEVER, Ticks

KEEP_ENDED = 7 * 86_400.0
"""Seconds for which a schedule that has ended is kept."""


class _Fields(Struct, frozen=True, omit_defaults=True, kw_only=True):
    anchor: int
    tick: int | None = None
    last: int | None = None
    ended: bool = False
    over: int | None = None
    declared: str | None = None
    spec: StoredSpec | None = None
    secret: tuple[str, ...] = ()


class Record(_Fields, frozen=True, kw_only=True):
    """`tick` is the one that its job stands for; None: it is paused or `ended`. `last` is the last tick with a job.

    `over` is the id of the job that a change meant to replace: see `store.change`. `declared` is the fingerprint of the
    declaration in code that it was last made from. `spec` is what an app said of the queue; without it, the app that
    does a tick decides how its job is made. `secret` names fields of the payload that are not shown.
    """

    schedule: Schedule

    @property
    def ticks(self) -> Ticks:
        return self.schedule.ticks(self.anchor)

    def is_certain(self, id: int | None) -> bool:
        """Whether its tick is still to come: the job that it replaced is the one that its writer had seen."""
        return self.over is None or self.over == id


class _Stored(_Fields, frozen=True, kw_only=True):
    """The form in the store: fields of a later version's schedule are ignored, not refused."""

    schedule: dict[str, Any]


class UnreadableSchedule(Exception):
    """A stored schedule cannot be read or used."""


def job_of(record: Record) -> NewJob:
    """The schedule's own job."""
    return NewJob(
        QUEUE,
        write_record(record),
        key=record.schedule.name,
        # An ended one is due at once, to be settled a last time and then be kept as done.
        start_at=0 if record.ended else NEVER if record.tick is None else record.tick,
        keep_for=KEEP_ENDED if record.ended else 0.0,
    )


def overlap_key(name: str) -> str:
    """The key that the jobs of a schedule share if they must not overlap."""
    return f"schedule/{name}"


def tick_job(record: Record, tick: int | None, now: int, make_job: MakeJob) -> NewJob:
    """The job of a tick; without a tick, one that was triggered by hand.

    The stored spec says how it is made. `make_job` is used if no app that has the handler has stored one.
    """
    schedule = record.schedule
    options: EnqueueOptions = {"priority": Priority[schedule.priority]}
    if schedule.type is not None:
        options["type"] = schedule.type
    if schedule.cost is not None:
        options["cost"] = schedule.cost
    if schedule.lane is not None:
        options["lane"] = schedule.lane
    if schedule.keep_for is not None:
        options["keep_for"] = float(schedule.keep_for)
    if schedule.overlap != "allow":
        options["key"] = overlap_key(schedule.name)
        options["on_duplicate"] = "keep" if schedule.overlap == "skip" else "replace"
    if record.spec is not None:
        job = new_job(restored_spec(schedule.queue, record.spec), schedule.payload, lambda: now, options)
    else:
        job = make_job(schedule.queue, schedule.payload, options)
    handlers, payload = unwrap(job.data)  # the handler may have added metadata, such as secret fields
    own = schedule.extras
    metadata = replace(
        handlers,
        name=own.name if own.name is not None else handlers.name,
        max_attempts=own.max_attempts if own.max_attempts is not None else handlers.max_attempts,
        hook=own.hook if own.hook is not None else handlers.hook,
        secret=tuple(dict.fromkeys((*handlers.secret, *record.secret))),
        schedule=schedule.name,
        tick=tick,
    )
    return replace(job, data=wrap(payload, metadata))


def write_record(record: Record) -> bytes:
    """A record as bytes."""
    fields = {name: getattr(record, name) for name in _Fields.__struct_fields__}
    return _encoder.encode(_Stored(**fields, schedule=plain(record.schedule)))


def read_record(data: bytes) -> Record:
    """A record from bytes, or `UnreadableSchedule` with what is wrong."""
    try:
        stored = _decoder.decode(data)
        known = {name: value for name, value in stored.schedule.items() if name in _KNOWN}
        fields = {name: getattr(stored, name) for name in _Fields.__struct_fields__}
        return Record(**fields, schedule=read_schedule(known))
    except InvalidInput as error:
        raise UnreadableSchedule(f"the stored schedule cannot be used: {error}") from error
    except (ValueError, RecursionError, TypeError) as error:  # damaged bytes must not stop a scheduler
        raise UnreadableSchedule(f"the stored schedule cannot be read: {error}") from error


def plain(schedule: Schedule) -> dict[str, Any]:
    """A schedule as plain values under their wire names, without those that are defaults."""
    every = msgspec.structs.asdict(schedule)
    return {_WIRE[name]: value for name, value in every.items() if value != _DEFAULTS.get(name, _MISSING)}


def fingerprint(schedule: Schedule, spec: StoredSpec | None = None, secret: Sequence[str] = ()) -> str:
    """Of what a declaration and its handler say, whether it is paused or not."""
    fields = plain(schedule)
    fields.pop("enabled", None)
    said: list[Any] = [dict(sorted(fields.items()))]
    if spec is not None:
        # The bytes of the payload are sorted: every process writes the elements of a set in an order of its own. A
        # different payload shows in the schedule itself.
        said += [[spec.policy, bytes(sorted(spec.data or b"")), spec.cost, spec.keep_for], list(secret)]
    return hashlib.sha256(_encoder.encode(said)).hexdigest()[:16]


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(_Stored)
_MISSING = object()
_WIRE = names_on_the_wire()
_KNOWN = frozenset(_WIRE.values())
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Schedule)}
