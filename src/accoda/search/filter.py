"""Which jobs people mean, as they write it; and whether a job is one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from accoda.envelope import HIDDEN, unwrap, without_secrets
from accoda.errors import InvalidInput
from accoda.fingerprint import fingerprint
from accoda.limits import KEY
from accoda.model import JobInfo, State, check_queue, check_state, clean
from accoda.shown.levels import LEVELS, Level, level_of
from accoda.shown.secrets import seen_of

if TYPE_CHECKING:
    from accoda.app import App

Fits = Callable[[JobInfo], bool]

LONGEST = 500
"""Characters of a text that is looked for."""
FIELD = "^[^.=\\x00\\s]+(\\.[^.=\\x00\\s]+)*=[^\\x00]*$"
"""A field and its value, as a schema can say it."""
_FINGERPRINT = re.compile("[0-9a-f]{12}")

Text = Annotated[str, Meta(min_length=1, max_length=LONGEST)]


class JobFilter(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which jobs: those that fit everything said here.

    `key` is the whole key. `error` is the `fingerprint` of a failure (12 hex digits) or a part of its text, in whatever
    case. `field` is a field of the payload and its value, `customer.id=42`, through lists into each element. `name` is
    a part of the job's name. What is secret never fits. `system`: in our own queues too.
    """

    queue: Annotated[str, Meta(max_length=128)] | None = None
    state: State | None = None
    priority: Level | None = None
    key: Annotated[str, Meta(min_length=1, max_length=KEY)] | None = None
    error: Text | None = None
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")] | None = None
    field: Text | None = None
    name: Text | None = None
    system: bool = False


def check_filter(filter: JobFilter) -> JobFilter:
    """Refuse what no job could fit, with the field that is wrong."""
    if filter.queue is not None:
        check_queue(filter.queue)
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
    return filter


def matcher(app: App, filter: JobFilter) -> Fits | None:
    """Whether a job fits what is said beside its queue and state; None: nothing is."""
    checks: list[Fits] = []
    if filter.key is not None:
        checks.append(lambda job: job.key == filter.key)
    if filter.priority is not None:
        checks.append(lambda job: level_of(app, job) == filter.priority)
    if (name := filter.name) is not None:
        checks.append(lambda job: name.casefold() in (unwrap(job.data)[0].name or "").casefold())
    if (wanted := filter.fingerprint) is not None:
        checks.append(lambda job: bool(job.reason) and fingerprint(job.reason or "") == wanted)
    if (error := filter.error) is not None:
        checks.append(lambda job: _has_error(app, job, error))
    if filter.field is not None:
        path, value = _field_of(filter.field)
        checks.append(lambda job: _has_field(app, job, path, value))
    if not checks:
        return None
    return checks[0] if len(checks) == 1 else lambda job: all(fits(job) for fits in checks)


def _field_of(text: str) -> tuple[list[str], str]:
    path, equals, value = text.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise InvalidInput("field", f"must be a field and its value, such as customer.id=42, not {text!r:.60}")
    return names, value.strip()


def _has_error(app: App, job: JobInfo, error: str) -> bool:
    if not job.reason:
        return False
    if _FINGERPRINT.fullmatch(error) and fingerprint(job.reason) == error:
        return True
    if HIDDEN not in error and error.casefold() not in job.reason.casefold():
        return False  # most are not, and need no look at their payload
    # Without what is secret: else who may look for texts, but see none, could guess them one by one.
    return error.casefold() in without_secrets(job.reason, seen_of(app, job).secrets).casefold()


def _has_field(app: App, job: JobInfo, path: list[str], wanted: str) -> bool:
    # In the payload as people see it: a field that is secret has no value there.
    return any(_text(value) == wanted for value in _at(seen_of(app, job).payload, path) if value != HIDDEN)


def _at(value: Any, path: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


def _text(value: Any) -> str:
    """A value as people write it: texts as they are, all else as in JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
