"""The run-time part of generated code: a record's fields as a msgpack array and back. See `docs/wire.md`.

The three fields that every job has (`job_id`, `attempts`, `prev_start_time`) are not on the wire. Fields that are added
at the end with a default can read older jobs, whose arrays are shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec
from msgspec import Struct, field
from msgspec.inspect import type_info

from accoda.contract.model import Int64, Queue
from accoda.envelope import payload_of
from accoda.errors import ContractError, InvalidInput
from accoda.limits import allowed, too_large
from accoda.model import Job
from accoda.payload import Codec, UnreadablePayload, use_codec
from accoda.shape import element_ends

__all__ = ["Int64", "RecordCodec", "Struct", "Wire", "field"]

R = TypeVar("R")

Pack = Callable[[Any], bytes]
Unpack = Callable[..., Any]

_UNFIT = (TypeError, ValueError, OverflowError, RecursionError)  # msgspec's own are ValueErrors


def shape_of(queue: Queue) -> type[Any]:
    """The array of a queue as a struct made at run time; the generator writes the same as a class."""
    fields: list[Any] = []
    for each in queue.fields:
        kind = each.type.annotation | None if each.optional else each.type.annotation
        default = each.given_default
        if not each.has_default:
            fields.append((each.name, kind))
        elif isinstance(default, list):
            fields.append((each.name, kind, field(default_factory=partial(list, default))))
        else:
            fields.append((each.name, kind, default))
    return msgspec.defstruct(f"{queue.class_name}Shape", fields, array_like=True)


class Wire:
    """The array of one queue: its fields in order, and the struct that decodes them."""

    def __init__(self, queue: str, shape: type[Any]) -> None:
        self.queue = queue
        self._shape = shape
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder(shape).decode

    def checked(self, values: tuple[Any, ...]) -> bytes:
        """Encode values that may not fit; a `ContractError` names the field that does not."""
        try:
            data = self.encode(values)
        except _UNFIT as error:
            raise self.unfit(error, values) from error
        try:
            self.decode(data)
        except _UNFIT as error:
            raise self.unreadable(error, data) from error
        return data

    def unfit(self, error: Exception, values: tuple[Any, ...]) -> ContractError:
        """The error that names the value that could not be encoded."""
        for name, value in zip(self._shape.__struct_fields__, values, strict=True):
            try:
                self.encode(value)
            except _UNFIT as cause:
                return self._error(name, str(cause))
        return self._error(None, str(error))

    def unreadable(self, error: Exception, data: bytes) -> ContractError:
        """The error that names the field that could not be decoded: the first that is incomplete or of another type."""
        starts = element_ends(data)
        if starts is None:
            return self._error(None, str(error))
        for number, (name, required, decode) in enumerate(self._parts):
            if number + 1 >= len(starts):
                if required:
                    return self._error(name, "the payload ends before it")
                break
            if starts[number + 1] > len(data):
                return self._error(name, "the payload ends within it")
            try:
                decode(data[starts[number] : starts[number + 1]])
            except Exception as cause:
                return self._error(name, str(cause).replace("`$[", "`["))
        return self._error(None, str(error))

    @cached_property
    def _parts(self) -> list[tuple[str, bool, Unpack]]:
        """Each field with its name, whether it is required, and its decoder. Only made when a payload is wrong."""
        hints = get_type_hints(self._shape, include_extras=True)
        fields = type_info(self._shape).fields  # type: ignore[attr-defined]
        return [(each.name, each.required, msgspec.msgpack.Decoder(hints[each.name]).decode) for each in fields]

    def _error(self, name: str | None, text: str) -> ContractError:
        what = "the payload is no array of its fields" if name is None else f"field {name!r}"
        return ContractError([f"{self.queue}: {what}: {text}"])


class RecordCodec(Codec[R], Generic[R]):
    """The payload codec of a generated record, for handlers and producers of its queue."""

    __slots__ = ("_pack", "_unpack")

    def __init__(self, record: type[R], pack: Pack, unpack: Unpack) -> None:
        super().__init__(record)
        self._pack = pack
        self._unpack = unpack
        use_codec(record, self)

    def encode(self, payload: object) -> bytes:
        if not isinstance(payload, self.type):
            raise InvalidInput("payload", f"must be a {self.type.__name__}, not a {type(payload).__name__}")
        try:
            data = self._pack(payload)
        except ContractError as error:
            raise InvalidInput("payload", str(error)) from error
        if len(data) > allowed.payload:
            too_large("payload", len(data), "payload")
        return data

    def decode(self, data: bytes) -> R:
        try:
            return self._unpack(payload_of(data))  # type: ignore[no-any-return]
        except ContractError as error:
            raise UnreadablePayload(str(error)) from error

    def open(self, job: Job) -> R:
        try:
            return self._unpack(payload_of(job.data), job.id, job.attempts, job.prev_start_time)  # type: ignore[no-any-return]
        except ContractError as error:
            raise UnreadablePayload(str(error)) from error
