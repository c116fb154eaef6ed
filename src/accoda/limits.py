"""Every limit on what is accepted, in one place. `docs/limits.md` is the same table for people.

A limit holds where something comes in: a job is enqueued, a handler gives its result, a document is written. What is
stored already is read as long as it is within `most`, beyond which no limit can be raised. So a worker reads what a
producer with higher limits stored, and no stored record can cost it more than a bounded time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NoReturn

from msgspec import Struct

from accoda.errors import SettingsError, TooLarge

KIB, MIB = 1 << 10, 1 << 20

# -- limits that are the same everywhere, because a store, a URL or a metric could not carry more

KEY = 512
"""Characters of a job's key."""
TEXT = 16_384
"""Characters of a reason or a progress message; what is longer is cut. A reason may hold a traceback."""
DOCUMENT_NAME = 512
"""Characters of a document's name, which is a path of names such as `worker/host-7`."""
COST = 1 << 53
MOMENT = 1 << 53
"""Milliseconds: about the year 287,000; beyond it a float no longer holds every integer."""
ARRAY_KEYS = 1000
"""Keys of maps in a payload that are arrays. Anybody can make such keys collide, and n of them cost n² comparisons."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
NAME_RULE = "must be 1 to 128 letters, digits, '_', '.' or '-', and not start with '.' or '-'"
"""Names of queues and workers: what every storage, URL, settings path and metric can carry."""


class Limit(Struct, frozen=True, kw_only=True):
    """A limit that may be changed, up to `most`. `advice`: what to do instead of raising it."""

    name: str
    default: int
    most: int
    unit: str
    what: str
    advice: str

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return f"ACCODA_MAX_{self.name.upper()}"

    def read(self, raw: object) -> int:
        """A value for it, or a `ValueError` that says what is allowed.

        >>> BY_NAME["payload"].read("1MiB")
        1048576
        """
        value = raw
        if isinstance(raw, str) and (found := _SIZE.fullmatch(raw.strip())):
            value = int(found[1]) * _UNITS[found[2].lower()]
        if type(value) is not int or not 1 <= value <= self.most:
            raise ValueError(f"must be a whole number of {self.unit} from 1 to {self.most}, not {raw!r:.60}")
        return value


_SIZE = re.compile(r"([0-9]{1,15}) ?((?:[KkMm](?:i?[Bb])?)?)")
_UNITS = {"": 1, "k": KIB, "kb": KIB, "kib": KIB, "m": MIB, "mb": MIB, "mib": MIB}
_REFERENCE = "store the data elsewhere and enqueue a reference to it"

# fmt: off
LIMITS: tuple[Limit, ...] = (
    Limit(name="payload", default=256 * KIB, most=64 * MIB, unit="bytes", what="a job's payload, encoded",
          advice=_REFERENCE),
    Limit(name="depth", default=64, most=256, unit="levels",
          what="lists and maps inside each other in a payload or result",
          advice="flatten it, or enqueue it as bytes or text"),
    Limit(name="items", default=100_000, most=1_000_000, unit="values",
          what="elements, keys and values in a payload or result, all counted",
          advice="split it over several jobs, or enqueue it as bytes or text"),
    Limit(name="result", default=MIB, most=64 * MIB, unit="bytes", what="what a handler returns, encoded",
          advice="store it elsewhere and return a reference to it"),
    Limit(name="waiter", default=64 * KIB, most=MIB, unit="bytes", what="what is kept of one waiter",
          advice="store the data elsewhere and let the waiter refer to it"),
    Limit(name="document", default=MIB, most=64 * MIB, unit="bytes", what="the value of a document",
          advice="store the data elsewhere and keep a reference"),
    Limit(name="jobs_per_call", default=100_000, most=1_000_000, unit="jobs", what="jobs in one `enqueue`",
          advice="enqueue them in several calls"),
)
# fmt: on
BY_NAME = {limit.name: limit for limit in LIMITS}


class Allowed(Struct):
    """The limits of this process. Read them; `set_limits` changes them."""

    payload: int = BY_NAME["payload"].default
    depth: int = BY_NAME["depth"].default
    items: int = BY_NAME["items"].default
    result: int = BY_NAME["result"].default
    waiter: int = BY_NAME["waiter"].default
    document: int = BY_NAME["document"].default
    jobs_per_call: int = BY_NAME["jobs_per_call"].default


allowed = Allowed()
MOST = Allowed(*(limit.most for limit in LIMITS))
"""What is still read, however it was stored."""

_problems: dict[str, str] = {}


def set_limits(**values: int) -> None:
    """Change limits of this process: `set_limits(payload=1 << 20, depth=100)`. They win over the environment.

    All of them or, where one cannot be used, none.
    """
    new: dict[str, int] = {}
    for name, value in values.items():
        if name not in BY_NAME:
            raise SettingsError(f"there is no limit {name!r}; known are {', '.join(BY_NAME)}")
        try:
            new[name] = BY_NAME[name].read(value)
        except ValueError as error:
            raise SettingsError(f"limit {name}: {error}") from error
    for name, value in new.items():
        setattr(allowed, name, value)
        _problems.pop(name, None)


def as_told() -> dict[str, int]:
    """The limits by name, for another process that shall have the same."""
    return {limit.name: getattr(allowed, limit.name) for limit in LIMITS if limit.name not in _problems}


def environment_problems(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What is wrong with the limits in an environment, a line for each."""
    return tuple(_read_environment(environ)[1].values())


def too_large(field: str, size: int, name: str) -> NoReturn:
    """Refuse what is over a limit."""
    if name in _problems:
        raise SettingsError(_problems[name])
    limit = BY_NAME[name]
    raise TooLarge(field, size, getattr(allowed, name), limit.unit, f"{limit.advice}, or raise {limit.variable}")


def is_name(value: object) -> bool:
    """Whether it can be the name of a queue or a worker."""
    return type(value) is str and NAME.match(value) is not None


def _read_environment(environ: Mapping[str, str]) -> tuple[dict[str, int], dict[str, str]]:
    values: dict[str, int] = {}
    problems: dict[str, str] = {}
    for limit in LIMITS:
        text = environ.get(limit.variable, "")
        if text.strip():
            try:
                values[limit.name] = limit.read(text)
            except ValueError as error:
                problems[limit.name] = f"environment {limit.variable}: {error}"
    return values, problems


def _start(environ: Mapping[str, str]) -> None:
    """Take the environment's word. What is wrong with it is raised by the first use, not by an import.

    For that a wrong limit becomes -1: everything is over it, and `too_large` then says what is wrong.
    """
    values, problems = _read_environment(environ)
    _problems.update(problems)
    for name, value in (values | dict.fromkeys(problems, -1)).items():
        setattr(allowed, name, value)


_start(os.environ)
