"""What a job carries beside its payload: its type, headers, a name for people, its own limit of attempts, its webhook.

It stands in front of the payload's bytes, and only where there is something to say: most jobs have none of it.

    0xC1 · length of the metadata (4 bytes) · metadata (msgpack map) · payload

0xC1 is the one byte that msgpack never uses, so no payload begins with it, and a look at one byte tells the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.model import clean

Event = Literal["done", "dead"]

MARK = 0xC1
HEAD = 5
NAME_LENGTH = TYPE_LENGTH = 200
"""The longest name or type of a job, and the longest name of a header."""
TYPE_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]+$"
"""A type, and the name of a header, has no control characters."""
HEADERS = 50
HEADERS_LENGTH = 16_384
"""The most characters of all headers of a job together, names and values."""
CACHED_HEAD = 512
"""Bytes of metadata up to which they are remembered decoded: jobs of a type usually have the same."""
URL_LENGTH = 2000
SECRET_FIELDS = 50
HIDDEN = "•••"
"""What is shown in the place of a secret."""


class Hook(Struct, frozen=True, omit_defaults=True):
    """Where to call when the job has ended, and after which ends."""

    url: str
    on: tuple[Event, ...] = ("done", "dead")


class FlowPlace(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where a job is in its flow: the flow's id, the node's name, and the results of the nodes before it, encoded.

    `read`: there are too many results for the envelope, so they are read when the job is taken. `takes_results`: they
    are its payload, that of the one node before it or a list of those of several.
    """

    id: str
    node: str
    parents: dict[str, bytes] = {}
    read: bool = False
    takes_results: Literal["", "one", "list"] = ""


class JobMetadata(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What travels with a payload. `secret` names fields of it that are never shown (`card`, `customer.phone`).

    `type` names the handler inside the queue, and `headers` are texts of the user's own. Decoded metadata are shared
    between jobs, so nothing may change them.

    `schedule` and `tick` tell which schedule made the job, and for which moment; `flow` where it is in its flow.
    """

    type: str | None = None
    headers: dict[str, str] = {}
    name: str | None = None
    max_attempts: int | None = None
    hook: Hook | None = None
    secret: tuple[str, ...] = ()
    schedule: str | None = None
    tick: int | None = None
    flow: FlowPlace | None = None


NOTHING = JobMetadata()


def wrap(payload: bytes, metadata: JobMetadata) -> bytes:
    """The payload with its metadata in front of it; the payload itself where there are none.

    >>> unwrap(wrap(b"x", JobMetadata(name="Report"))) == (JobMetadata(name="Report"), b"x")
    True
    """
    if metadata is NOTHING or metadata == NOTHING:
        return payload
    head = _encoder.encode(metadata)
    return b"".join((_MARK, len(head).to_bytes(HEAD - 1, "big"), head, payload))


def unwrap(data: bytes) -> tuple[JobMetadata, bytes]:
    """The metadata and the payload. Of an envelope that cannot be read, nothing and the data as they are: they will
    not decode, and that is reported then."""
    if not data or data[0] != MARK:
        return NOTHING, data
    end = HEAD + int.from_bytes(data[1:HEAD], "big")
    try:
        head = data[HEAD:end]
        return (_remembered(head) if len(head) <= CACHED_HEAD else _decoder.decode(head)), data[end:]
    except (ValueError, RecursionError):  # msgspec's and Unicode's are both ValueErrors
        return NOTHING, data


def type_of(data: bytes) -> str | None:
    """The type of a job, from its stored data."""
    return None if not data or data[0] != MARK else unwrap(data)[0].type


def payload_of(data: bytes) -> bytes:
    """The payload alone."""
    return data if not data or data[0] != MARK else unwrap(data)[1]


def check_metadata(metadata: JobMetadata) -> JobMetadata:
    """Refuse what could not be kept or used; the field is named as `EnqueueOptions` names it."""
    if metadata.type is not None:
        check_type(metadata.type)
    if metadata.name is not None and (
        type(metadata.name) is not str
        or not 0 < len(metadata.name) <= NAME_LENGTH
        or clean(metadata.name) != metadata.name
    ):
        raise InvalidInput("name", f"must be 1 to {NAME_LENGTH} characters of valid text, not {metadata.name!r:.60}")
    if metadata.max_attempts is not None and (type(metadata.max_attempts) is not int or metadata.max_attempts < 1):
        raise InvalidInput("max_attempts", f"must be an integer >= 1, not {metadata.max_attempts!r:.60}")
    if len(metadata.secret) > SECRET_FIELDS:
        raise InvalidInput("secret", f"must be at most {SECRET_FIELDS} names of fields, not {len(metadata.secret)}")
    if not all(type(field) is str and field for field in metadata.secret):
        raise InvalidInput("secret", f"must be names of fields, none of them empty, not {metadata.secret!r:.60}")
    return metadata


def check_type(type: object) -> None:
    """Refuse what cannot be the type of a job."""
    if not _is_label(type):
        raise InvalidInput("type", f"must be 1 to {NAME_LENGTH} characters, none a control character, not {type!r:.60}")


def check_headers(headers: object) -> None:
    """Refuse headers that are no texts, or too many."""
    if not isinstance(headers, Mapping):
        raise InvalidInput("headers", f"must map names to texts, such as {{'tenant': 'acme'}}, not {headers!r:.60}")
    if len(headers) > HEADERS:
        raise InvalidInput("headers", f"must be at most {HEADERS}, not {len(headers)}; put data into the payload")
    length = 0
    for name, value in headers.items():
        if not _is_label(name):
            raise InvalidInput(
                "headers",
                f"a name must be 1 to {NAME_LENGTH} characters, none a control character, not {name!r:.60}",
            )
        if type(value) is not str or not _is_text(value):
            raise InvalidInput("headers", f"the value of {name!r:.60} must be valid text, not {value!r:.60}")
        length += len(value)
    if length > HEADERS_LENGTH:
        raise InvalidInput(
            "headers",
            f"their values have {length:,} characters, and {HEADERS_LENGTH:,} are allowed; put data into the payload",
        )


def hidden(value: Any, secret: Sequence[str]) -> Any:
    """Plain values with what is secret replaced; a path goes through maps by name, and through lists into each element.

    >>> hidden({"card": "4111", "lines": [{"iban": "IT60", "sum": 3}]}, ["card", "lines.iban"])
    {'card': '•••', 'lines': [{'iban': '•••', 'sum': 3}]}
    """
    for path in secret:
        value = _without(value, path.split("."))
    return value


def named(value: Any) -> Any:
    """A record as a map of its fields; those that every contract record has tell nothing of the payload."""
    if isinstance(value, Struct):
        fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {wire: named(getattr(value, name)) for name, wire in fields if name not in _EVERY_RECORD}
    if isinstance(value, (list, tuple)):
        return [named(each) for each in value]
    if isinstance(value, dict):
        return {key: named(each) for key, each in value.items()}
    return value


def has_names(value: Any) -> bool:
    """Whether fields can be found in it by name: it is a map, or a list of maps."""
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(one, dict) for one in value))


def _is_label(value: object) -> bool:
    return type(value) is str and 0 < len(value) <= NAME_LENGTH and _is_text(value) and _CONTROL.search(value) is None


def _is_text(value: str) -> bool:
    """Whether every storage can keep it: no NUL, no lone surrogate."""
    if value.isascii():
        return "\0" not in value
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _without(value: Any, path: Sequence[str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_without(one, path) for one in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    inner = HIDDEN if len(path) == 1 else _without(value[path[0]], path[1:])
    return {**value, path[0]: inner}


_EVERY_RECORD = ("job_id", "attempts", "prev_start_time")
_MARK = bytes((MARK,))
_TYPE = re.compile(TYPE_PATTERN)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(JobMetadata)
_remembered = lru_cache(maxsize=1000)(_decoder.decode)  # a bound: heads of jobs that have a name each come and go
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
