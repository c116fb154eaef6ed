"""What addresses and forms of these pages say, as values; and addresses made of values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args
from urllib.parse import quote, urlencode

import msgspec

from accoda.admin.pages import JobFilter
from accoda.admin.requests import Level
from accoda.errors import InvalidInput, JobNotFound
from accoda.model import STATES

LEVELS: tuple[Level, ...] = get_args(Level)
FIELDS = ("queue", "state", "priority", "key", "error", "field", "name")
"""What jobs are filtered by, as the address names it."""
LONGEST = 64 << 10
"""Characters of a payload or a result that are shown."""
PICKED = "id-"
"""A box that is ticked beside job 41 is the field `id-41`: a form may say each name once."""


def filter_of(asked: Mapping[str, str]) -> JobFilter:
    """The filter that an address or a form names; what is empty is not asked for."""
    said: dict[str, Any] = {name: asked[name].strip() for name in FIELDS if asked.get(name, "").strip()}
    if "state" in said and said["state"] not in STATES:
        raise InvalidInput("state", f"must be one of {', '.join(STATES)}, not {said['state']!r:.60}")
    if "priority" in said:
        said["priority"] = level_of(said["priority"])
    return JobFilter(**said, system=asked.get("system") == "1")


def words_of(filter: JobFilter) -> dict[str, str]:
    """A filter as the fields of an address or a form.

    >>> words_of(JobFilter(queue="emails", state="dead"))
    {'queue': 'emails', 'state': 'dead'}
    """
    said = {name: value for name in FIELDS if (value := getattr(filter, name)) is not None}
    return said | ({"system": "1"} if filter.system else {})


def level_of(text: str) -> Level:
    """A priority level, in letters of any size."""
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
    """The jobs beside which a box is ticked, by id.

    >>> picked({"id-41": "on", "id-7": "on", "action": "retry"})
    [7, 41]
    """
    return sorted(id_of(name.removeprefix(PICKED)) for name in asked if name.startswith(PICKED))


def address(path: str, **query: object) -> str:
    """A path with what is not empty of the query.

    >>> address("/jobs", state="dead", queue="", cursor=None)
    '/jobs?state=dead'
    """
    said = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{quote(path)}?{urlencode(said)}" if said else quote(path)


def pretty(value: Any) -> str:
    """A value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


class Text:
    """A value as JSON, cut where it is too long to be read."""

    def __init__(self, text: str, cut: int) -> None:
        self.text = text
        self.cut = cut

    @classmethod
    def of(cls, value: Any) -> Text | None:
        if value is None:
            return None
        text = pretty(value)
        return cls(text[:LONGEST], max(0, len(text) - LONGEST))


def some(n: int, what: str = "job") -> str:
    """So many of something.

    >>> some(1), some(1200), some(2, "dead letter")
    ('1 job', '1,200 jobs', '2 dead letters')
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
