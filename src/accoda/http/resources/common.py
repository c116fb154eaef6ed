"""Parts of requests and answers that several resources share."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.envelope import URL_LENGTH
from accoda.http.operation import Reply
from accoda.operations import moments

T = TypeVar("T")

NAME_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
OWN_PATTERN = "^(?!accoda\\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
"""Queues of users: names that begin with `accoda.` are Accoda's own. For schemas; what is refused says it in words."""
TEXT_PATTERN = "^[^\\x00]+$"
_HOST = "(\\[([0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f.]*\\]|[^/?#@:\\[\\]\\s\\\\]{1,253})(:[0-9]{1,5})?"
WEBHOOK_URL = {
    "format": "webhook-url",
    "minLength": 1,
    "maxLength": URL_LENGTH,
    "pattern": f"^[Hh][Tt][Tt][Pp][Ss]?://{_HOST}([/?][^#\\s\\\\]*)?$",
}
"""A webhook's URL as far as a schema can say it: a host and no user, no fragment, no blanks. Whether it is a name, and
the port one that may be called, is looked at as well."""
MOST_ID = (1 << 63) - 1

JobId = Annotated[int, Meta(ge=1, le=MOST_ID, description="the job's number")]
QueueName = Annotated[
    str, Meta(pattern=NAME_PATTERN, description="a queue: letters, digits, `_`, `.`, `-`; at most 128")
]
OwnQueueName = Annotated[
    str,
    Meta(
        description="a queue: letters, digits, `_`, `.`, `-`; at most 128; not one whose name begins with `accoda.`",
        extra_json_schema={"pattern": OWN_PATTERN},
    ),
]
Moment = Annotated[
    str,
    Meta(
        max_length=64,
        description="a moment in RFC 3339 with an offset: `2030-01-01T09:00:00Z`",
        extra_json_schema=moments.SHAPE,
    ),
]
Limit = Annotated[int, Meta(ge=1, le=500, description="items on a page")]
Cursor = Annotated[str, Meta(description="the `next` of the page before", extra_json_schema={"format": "cursor"})]
Flag = Annotated[
    bool, Meta(description="system queues too: `accoda.*`, cached results of demands, spending logs of budgets")
]
Fingerprint = Annotated[
    str, Meta(pattern="^[0-9a-f]{12}$", description="12 hex digits that failures of the same cause share")
]


class JobPath(Struct, frozen=True, forbid_unknown_fields=True):
    """A job by its number."""

    id: JobId


class QueuePath(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue by its name."""

    name: QueueName


class OwnQueuePath(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue that is no system queue, by its name."""

    name: OwnQueueName


class SystemQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether what is Accoda's own is shown as well."""

    all: Flag = False


class Items(Struct, Generic[T], frozen=True):
    """All there are."""

    items: list[T]


class Count(Struct, frozen=True):
    """How many there were."""

    count: int


GONE = Reply(description="It is gone.")
"""204, without a body."""


def present(*fields: str) -> dict[str, Any]:
    """As a rule of a schema: these fields are there, and not null."""
    return {"required": list(fields), "properties": {name: {"not": {"type": "null"}} for name in fields}}


def given(value: T | UnsetType) -> T | None:
    """A value that may be left out; None: it was."""
    return None if value is UNSET else value
