"""What the doctor says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from msgspec import Struct

Level = Literal["ok", "note", "warning", "problem"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""From good to bad."""


class Finding(Struct, frozen=True):
    """One thing that was examined: what it is, what was found, and what to change, with the exact setting.

    A `problem` loses jobs, or keeps them from running; a `warning` may, one day; a `note` is good to know.
    """

    level: Level
    what: str
    found: str
    advice: str = ""


class Looked(Struct, frozen=True):
    """What was found at a store. `usable`: it may be opened as usual, which changes nothing in it."""

    findings: list[Finding]
    usable: bool = False


def ok(what: str, found: str) -> Finding:
    return Finding("ok", what, found)


def note(what: str, found: str, advice: str = "") -> Finding:
    return Finding("note", what, found, advice)


def warning(what: str, found: str, advice: str) -> Finding:
    return Finding("warning", what, found, advice)


def problem(what: str, found: str, advice: str) -> Finding:
    return Finding("problem", what, found, advice)


def layout(found: int, known: int, url: str) -> Finding:
    """Whether a store has the layout that this version knows."""
    if found > known:
        advice = "pip install --upgrade accoda"
        return problem("layout", f"{found}, written by a newer Accoda; this one knows {known}", advice)
    if found < known:
        advice = f"accoda migrate {url}, or let the next worker do it when it starts"
        return problem("layout", f"{found}, and this Accoda needs {known}", advice)
    return ok("layout", f"{found}, up to date")


def worst(findings: Sequence[Finding]) -> Level:
    """The worst level among them."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")


def has_problem(findings: Sequence[Finding]) -> bool:
    return worst(findings) == "problem"


def may_open(findings: Sequence[Finding]) -> bool:
    """Whether the store can be opened as usual without a change to it: its layout is the current one."""
    current = any(finding.what in ("layout", "application") and finding.level == "ok" for finding in findings)
    return current and not any(finding.level == "problem" and finding.what in _IN_THE_WAY for finding in findings)


# With one of these a store is not opened, or should not be.
_IN_THE_WAY = frozenset(
    {"driver", "library", "store", "server", "role", "encoding", "pooler", "file", "file system", "maxmemory-policy"}
)
