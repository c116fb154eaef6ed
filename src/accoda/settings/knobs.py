"""Every setting in one row, and what its value may be. A new knob is a new row here and in `docs/settings.md`."""

from __future__ import annotations

import re
from datetime import timedelta
from difflib import get_close_matches
from math import isfinite
from typing import Literal

from msgspec import Struct

from accoda.times import read_length

Number = int | float | None

_YEAR = 366 * 86_400.0
_COUNT = re.compile(r"[+-]?[0-9]{1,18}")


class Knob(Struct, frozen=True, kw_only=True):
    """One setting. `option` is the handler's argument that sets it in code; `none`: it can be switched off."""

    name: str
    of: Literal["worker", "queue"]
    kind: Literal["count", "seconds"]
    default: Number
    low: float
    high: float
    help: str
    none: bool = False
    option: str | None = None

    @property
    def unit(self) -> str:
        return "s" if self.kind == "seconds" else ""

    @property
    def range(self) -> str:
        """The allowed values, in words.

        >>> QUEUE_KNOBS["timeout"].range
        'a length of time from 0.001 to 31622400 seconds (30, "30s", "500ms", "2m") or "none"'
        """
        kind = "a whole number" if self.kind == "count" else "a length of time"
        examples = "" if self.kind == "count" else ' seconds (30, "30s", "500ms", "2m")'
        return f"{kind} from {self.low:.10g} to {self.high:.10g}{examples}" + (' or "none"' if self.none else "")

    def read(self, raw: object) -> Number:
        """The typed value of what a source says, or a `ValueError` that names the allowed values.

        >>> QUEUE_KNOBS["visibility_timeout"].read("1m30s")
        90.0
        >>> QUEUE_KNOBS["batch_size"].read("many")
        Traceback (most recent call last):
            ...
        ValueError: batch_size must be a whole number from 1 to 100000, not 'many'
        """
        if self.none and (raw is None or raw == "none"):
            return None
        value = _count(raw) if self.kind == "count" else _seconds(raw)
        if value is None or not self.low <= value <= self.high:
            raise ValueError(f"{self.name} must be {self.range}, not {_shown(raw)}")
        return value


# fmt: off
KNOBS: tuple[Knob, ...] = (
    Knob(name="max_processors", of="worker", kind="count", default=1, low=1, high=10_000,
         help="how many loops take and run jobs in this worker"),
    Knob(name="concurrency", of="worker", kind="count", default=None, low=1, high=100_000, none=True,
         help="how many single jobs run at once in this worker; none: as many as one of its queues may"),
    Knob(name="grace", of="worker", kind="seconds", default=30.0, low=0, high=_YEAR,
         help="how long a stopping worker lets its batches finish"),
    Knob(name="heartbeat", of="worker", kind="seconds", default=5.0, low=0.01, high=_YEAR,
         help="how often the worker writes its heartbeat"),
    Knob(name="stall_after", of="worker", kind="seconds", default=30.0, low=0.01, high=_YEAR,
         help="ready jobs, free processors and no take for this long: the worker is not ready"),
    Knob(name="max_processors", of="queue", kind="count", default=None, low=1, high=10_000,
         help="how many of the worker's loops may run this queue at once"),
    Knob(name="visibility_timeout", of="queue", kind="seconds", default=60.0, low=0.001, high=_YEAR, option="lease",
         help="how long a taken job stays away before it comes back by itself"),
    Knob(name="batch_size", of="queue", kind="count", default=10, low=1, high=100_000, option="batch",
         help="how many jobs a processor runs at once, or has in a batch"),
    Knob(name="concurrency", of="queue", kind="count", default=None, low=1, high=100_000, none=True,
         option="concurrency",
         help="how many jobs of this queue run at once in a worker; "
         "none: as many as the worker's own, or max_processors × batch_size"),
    Knob(name="timeout", of="queue", kind="seconds", default=None, low=0.001, high=_YEAR, none=True, option="timeout",
         help="how long one run of the handler may take"),
    Knob(name="max_attempts", of="queue", kind="count", default=None, low=1, high=10**9, none=True,
         option="max_attempts", help="how many times the handler may fail before a job is buried"),
    Knob(name="max_crashes", of="queue", kind="count", default=None, low=1, high=10**9, none=True, option="max_crashes",
         help="how many leases of a job may end without an outcome before it is buried; none: any number"),
    Knob(name="keep_dead_for", of="queue", kind="seconds", default=None, low=1, high=100 * _YEAR, none=True,
         option="keep_dead_for", help="how long dead jobs are kept; none: until they are deleted or revived"),
    Knob(name="slow_cycle", of="queue", kind="seconds", default=10.0, low=0.001, high=_YEAR,
         help="a take-run-settle cycle that is longer is counted as slow"),
)
# fmt: on

WORKER_KNOBS = {knob.name: knob for knob in KNOBS if knob.of == "worker"}
QUEUE_KNOBS = {knob.name: knob for knob in KNOBS if knob.of == "queue"}
NAMES = tuple(dict.fromkeys(knob.name for knob in KNOBS))


def suggest(word: str, known: tuple[str, ...] = NAMES) -> str:
    """The end of an error about `word`: the nearest known word, or all of them.

    >>> suggest("bach_size")
    "did you mean 'batch_size'?"
    """
    near = get_close_matches(word[:100], known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"write one of {', '.join(known)}"


def _count(raw: object) -> int | None:
    if type(raw) is int:
        return raw
    return int(raw) if isinstance(raw, str) and _COUNT.fullmatch(raw.strip()) else None


def _seconds(raw: object) -> float | None:
    if isinstance(raw, timedelta):
        return raw.total_seconds()
    if isinstance(raw, str):
        return read_length(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    # An integer too large for a float would raise; it is beyond every bound anyway.
    return float(raw) if abs(raw) < 1e18 and isfinite(raw) else None


def _shown(raw: object) -> str:
    if isinstance(raw, dict):
        return "a table"
    if isinstance(raw, list):
        return "a list"
    text = repr(raw) if not isinstance(raw, int) or abs(raw) < 10**30 else "a number of very many digits"
    return text if len(text) <= 60 else text[:57] + "…"
