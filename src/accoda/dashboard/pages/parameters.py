"""Parameters of addresses and forms as values; and addresses made of values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from accoda.errors import InvalidInput, JobNotFound
from accoda.operations.job_filter import JobFilter
from accoda.operations.levels import LEVELS, Level

FIELDS = ("queue", "type", "lane", "state", "priority", "key", "error", "fingerprint", "field", "name")
"""The fields of a filter in the address."""
LONGEST = 64 << 10
"""Characters of a payload or a result that are shown."""
PICKED = "id-"
"""A ticked box beside job 41 is the field `id-41`: a form may have each name once."""


def filter_of(asked: Mapping[str, str]) -> JobFilter:
    """The filter in an address or a form; empty fields are left out."""
    said: dict[str, Any] = {name: asked[name].strip() for name in FIELDS if asked.get(name, "").strip()}
    if "priority" in said:
        said["priority"] = said["priority"].upper()
    return JobFilter(**said, system=asked.get("system") == "1")


def words_of(filter: JobFilter) -> dict[str, str]:
    """A filter as the fields of an address or a form.

    >>> words_of(JobFilter(queue="emails", state="dead"))
    {'queue': 'emails', 'state': 'dead'}
    """
    said = {name: value for name in FIELDS if (value := getattr(filter, name)) is not None}
    return said | ({"system": "1"} if filter.system else {})


def level_of(text: str) -> Level:
    """A priority level, in any case."""
    for level in LEVELS:
        if text.upper() == level:
            return level
    raise InvalidInput("priority", f"must be one of {', '.join(LEVELS)}, not {text!r:.60}")


def id_of(text: str) -> int:
    """The id of a job."""
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise InvalidInput("id", f"must be the number of a job, not {text!r:.60}")
    id = int(text)
    if id >= 1 << 63:
        raise JobNotFound(id)
    return id


def picked(asked: Mapping[str, str]) -> list[int]:
    """The jobs whose boxes are ticked, by id.

    >>> picked({"id-41": "on", "id-7": "on", "action": "retry"})
    [7, 41]
    """
    return sorted(id_of(name.removeprefix(PICKED)) for name in asked if name.startswith(PICKED))


def address(path: str, **query: object) -> str:
    """A path with the non-empty part of a query.

    >>> address("/jobs", state="dead", queue="", cursor=None)
    '/jobs?state=dead'
    """
    said = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{quote(path)}?{urlencode(said)}" if said else quote(path)


def pretty(value: Any) -> str:
    """A value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


class Text(NamedTuple):
    """A value as JSON; `cut` characters of it are too many to show."""

    text: str
    cut: int

    @classmethod
    def of(cls, value: Any) -> Text | None:
        text = "" if value is None else pretty(value)
        return cls(text[:LONGEST], max(0, len(text) - LONGEST)) if text else None
