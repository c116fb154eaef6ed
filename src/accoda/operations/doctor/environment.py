"""This machine and this Python: versions, limits, open files."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from accoda.limits import environment_problems
from accoda.operations.doctor.findings import Finding, note, ok, problem, warning

OLDEST_PYTHON = (3, 11)
FEW_FILES = 1024

# What each kind of store needs: the distribution, its oldest supported version, and the extra that installs it.
DRIVERS = {
    "sqlite": ("apsw", "3.51.3", ""),
    **dict.fromkeys(("redis", "rediss", "redis+sentinel", "redis+cluster"), ("hiredis", "3", "redis")),
    "postgresql": ("asyncpg", "0.30", "postgres"),
    "postgres": ("asyncpg", "0.30", "postgres"),
}


def look(scheme: str, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """What can be checked before anything is connected."""
    return [_python(), *_driver(scheme), *_limits(os.environ if environ is None else environ), *_files()]


def _python() -> Finding:
    found = f"Python {platform.python_version()}, accoda {_version('accoda') or 'not installed'}"
    if sys.version_info < OLDEST_PYTHON:
        return problem("versions", found, "use Python 3.11 or newer")
    return ok("versions", found)


def _driver(scheme: str) -> list[Finding]:
    if scheme not in DRIVERS:
        return []
    name, oldest, extra = DRIVERS[scheme]
    wanted = f"accoda[{extra}]" if extra else f"{name}>={oldest}"
    found = _version(name)
    if found is None:
        return [problem("driver", f"{name} is not installed", f"pip install '{wanted}'")]
    if numbers(found) < numbers(oldest):
        advice = f"{oldest} is the oldest that is tested: pip install --upgrade '{wanted}'"
        return [warning("driver", f"{name} {found}", advice)]
    return [ok("driver", f"{name} {found}")]


def _limits(environ: Mapping[str, str]) -> list[Finding]:
    wrong = environment_problems(environ)
    return [problem("limits", each, "correct the variable, or unset it; see docs/limits.md") for each in wrong]


def _files() -> list[Finding]:
    try:
        import resource
    except ImportError:  # not on every system
        return []
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FEW_FILES:
        return [note("open files", f"at most {soft} at once", f"ulimit -n {max(4096, FEW_FILES)} before a service")]
    return []


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version.

    >>> numbers("7.2.4-rc1") > numbers("6.2")
    True
    """
    parts = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
