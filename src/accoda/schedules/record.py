"""A schedule as it is stored: a job of the system queue, under the schedule's name as its key.

Its start time is the next tick. The record in it is all that is known of the schedule, so that the step that settles a
tick, `Done(lease, then=[the jobs, the next record])`, is the only thing that ever has to be atomic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.model import NewJob
from accoda.schedules.model import QUEUE, Schedule, names_on_the_wire, read_schedule
from accoda.schedules.terms import Terms, mark_of
from accoda.schedules.ticks import NEVER, Ticks

KEEP_ENDED = 7 * 86_400.0
"""Seconds for which a schedule that has ended can still be seen."""


class Record(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`tick` is the one that its job stands for; None: it is paused, or `ended`.

    `over` is the id of the job that a change was meant to replace: see `store.change`. `declared` is the fingerprint of
    the declaration in code that it was last made from. `terms` are what an app told of the queue; without them, the app
    that does a tick says how its job is made. `secret` names fields of the payload that nobody is shown.
    """

    schedule: Schedule
    tick: int | None = None
    anchor: int
    last: int | None = None
    ended: bool = False
    over: int | None = None
    declared: str | None = None
    terms: Terms | None = None
    secret: tuple[str, ...] = ()

    @property
    def ticks(self) -> Ticks:
        return self.schedule.ticks(self.anchor)

    def is_sure(self, id: int | None) -> bool:
        """Whether its tick is known to be still to come: what it replaced is what its writer had seen."""
        return self.over is None or self.over == id


class _Stored(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The form in the store: fields of a later version's schedule are passed over, not refused."""

    schedule: dict[str, Any]
    anchor: int
    tick: int | None = None
    last: int | None = None
    ended: bool = False
    over: int | None = None
    declared: str | None = None
    terms: Terms | None = None
    secret: tuple[str, ...] = ()


class UnreadableSchedule(Exception):
    """The bytes of a stored schedule are none."""


def job_of(record: Record) -> NewJob:
    """The job that stands for a record."""
    return NewJob(
        QUEUE,
        write_record(record),
        key=record.schedule.name,
        # An ended one comes at once, to be settled a last time and then be kept as done.
        start_at=0 if record.ended else NEVER if record.tick is None else record.tick,
        keep_for=KEEP_ENDED if record.ended else 0.0,
    )


def write_record(record: Record) -> bytes:
    """A record as bytes."""
    fields = {name: getattr(record, name) for name in Record.__struct_fields__}
    return _encoder.encode(_Stored(**{**fields, "schedule": plain(record.schedule)}))


def read_record(data: bytes) -> Record:
    """A record from bytes, or `UnreadableSchedule` with what is wrong."""
    try:
        stored = _decoder.decode(data)
        known = {name: value for name, value in stored.schedule.items() if name in _KNOWN}
        fields = {name: getattr(stored, name) for name in Record.__struct_fields__}
        return Record(**{**fields, "schedule": read_schedule(known)})
    except InvalidInput as error:
        raise UnreadableSchedule(f"the stored schedule cannot be used: {error}") from error
    except (ValueError, RecursionError, TypeError) as error:  # whatever is in the bytes must stop nobody
        raise UnreadableSchedule(f"the stored schedule cannot be read: {error}") from error


def plain(schedule: Schedule) -> dict[str, Any]:
    """A schedule as plain values under their wire names, without what is as it would be anyway."""
    every = msgspec.structs.asdict(schedule)
    return {_WIRE[name]: value for name, value in every.items() if value != _DEFAULTS.get(name, _MISSING)}


def fingerprint(schedule: Schedule, terms: Terms | None = None, secret: Sequence[str] = ()) -> str:
    """Of what a declaration says, and its handler of the queue, whoever paused it."""
    said = plain(schedule)
    said.pop("enabled", None)
    told: list[Any] = [dict(sorted(said.items()))]
    if terms is not None:
        told += [mark_of(terms), list(secret)]
    return hashlib.sha256(_encoder.encode(told)).hexdigest()[:16]


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(_Stored)
_MISSING = object()
_WIRE = names_on_the_wire()
_KNOWN = frozenset(_WIRE.values())
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Schedule)}
