"""Which jobs people mean, as they write it; and whether a job is one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from accoda.envelope import HIDDEN, check_type, unwrap
from accoda.errors import InvalidInput
from accoda.fingerprint import fingerprint
from accoda.limits import KEY, MOMENT
from accoda.model import JobInfo, State, check_lane, check_queue, check_state, clean
from accoda.operations import moments
from accoda.operations.host import Host
from accoda.operations.lanes import LaneName
from accoda.operations.levels import LEVELS, Level, level_of
from accoda.operations.new_jobs import JobType
from accoda.operations.redaction import reason_of, redacted

Fits = Callable[[JobInfo], bool]

LONGEST = 500
"""Characters of a text to search for."""
FIELD = "^[^.=\\x00\\s]+(\\.[^.=\\x00\\s]+)*=[^\\x00]*$"
"""A field and its value, as a JSON schema describes it."""
_FINGERPRINT = re.compile("[0-9a-f]{12}")

Text = Annotated[str, Meta(min_length=1, max_length=LONGEST)]


class JobFilter(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which jobs: those that match everything given here.

    `type`, `lane` and `key` are matched as a whole. `error` is the `fingerprint` of a failure (12 hex digits) or a
    part of its text, in any case. `field` is a field of the payload and its value, `customer.id=42`, through lists
    into each element. `name` is a part of the job's name. Secret values never match. `after` and `before` are moments
    of the end of a job that has ended. `system`: in system queues too.
    """

    queue: Annotated[str, Meta(max_length=128)] | None = None
    type: JobType | None = None
    lane: LaneName | None = None
    state: State | None = None
    priority: Level | None = None
    key: Annotated[str, Meta(min_length=1, max_length=KEY)] | None = None
    error: Text | None = None
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")] | None = None
    field: Text | None = None
    name: Text | None = None
    after: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    before: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    system: bool = False


def check_filter(filter: JobFilter) -> None:
    """Refuse what no job could match, naming the field that is wrong."""
    if filter.queue is not None:
        check_queue(filter.queue)
    if filter.type is not None:
        check_type(filter.type)
    if filter.lane is not None:
        check_lane(filter.lane)
    if filter.state is not None:
        check_state(filter.state)
    if filter.priority is not None and filter.priority not in LEVELS:
        raise InvalidInput("priority", f"must be one of {', '.join(LEVELS)}, not {filter.priority!r:.60}")
    for name, most in (("key", KEY), ("error", LONGEST), ("field", LONGEST), ("name", LONGEST)):
        text = getattr(filter, name)
        if text is not None and (type(text) is not str or not 0 < len(text) <= most or clean(text) != text):
            raise InvalidInput(name, f"must be 1 to {most} characters of valid text, not {text!r:.60}")
    if filter.fingerprint is not None and _FINGERPRINT.fullmatch(filter.fingerprint) is None:
        raise InvalidInput("fingerprint", f"must be 12 hex digits, not {filter.fingerprint!r:.60}")
    if filter.field is not None:
        _field_of(filter.field)
    ended_between(filter)


def ended_between(filter: JobFilter) -> tuple[int, int]:
    """The moments between which matching jobs ended."""
    since = 0 if filter.after is None else moments.read("after", filter.after)
    return since, MOMENT if filter.before is None else moments.read("before", filter.before)


def matcher(host: Host, filter: JobFilter) -> Fits | None:
    """Whether a job matches what the filter says beside its queue and state; None: it says nothing more."""
    checks: list[Fits] = []
    if filter.key is not None:
        checks.append(lambda job: job.key == filter.key)
    if filter.priority is not None:
        checks.append(lambda job: level_of(host, job) == filter.priority)
    if (wanted_type := filter.type) is not None:
        checks.append(lambda job: unwrap(job.data)[0].type == wanted_type)
    if filter.lane is not None:
        checks.append(lambda job: job.lane == filter.lane)
    if (name := filter.name) is not None:
        checks.append(lambda job: name.casefold() in (unwrap(job.data)[0].name or "").casefold())
    if (wanted := filter.fingerprint) is not None:
        checks.append(lambda job: bool(job.reason) and fingerprint(job.reason or "") == wanted)
    if (error := filter.error) is not None:
        checks.append(lambda job: _has_error(host, job, error))
    if filter.field is not None:
        path, value = _field_of(filter.field)
        checks.append(lambda job: _has_field(host, job, path, value))
    if not checks:
        return None
    return checks[0] if len(checks) == 1 else lambda job: all(fits(job) for fits in checks)


def _field_of(text: str) -> tuple[list[str], str]:
    path, equals, value = text.partition("=")
    names = path.strip(" ").split(".")
    if not equals or not all(names):
        raise InvalidInput("field", f"must be a field and its value, such as customer.id=42, not {text!r:.60}")
    return names, value.strip()


def _has_error(host: Host, job: JobInfo, error: str) -> bool:
    if not job.reason:
        return False
    if _FINGERPRINT.fullmatch(error) and fingerprint(job.reason) == error:
        return True
    if HIDDEN not in error and error.casefold() not in job.reason.casefold():
        return False  # most jobs do not match, and need no look at their payload
    # Without secrets: otherwise a caller who may search but not see them could guess them one by one.
    return error.casefold() in reason_of(host, job).casefold()


def _has_field(host: Host, job: JobInfo, path: list[str], wanted: str) -> bool:
    # In the payload as people see it: a secret field has no value there.
    return any(_text(value) == wanted for value in _at(redacted(host, job).payload, path) if value != HIDDEN)


def _at(value: Any, path: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


def _text(value: Any) -> str:
    """A value as people write it: texts as they are, the rest as in JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
