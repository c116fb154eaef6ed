"""What a run found, kept in scale.json: a section for each part, replaced when the part runs again."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS

Facts = dict[str, Any]
"""Plain numbers, texts, lists and dicts: what JSON can hold."""


@dataclass
class Record:
    """The file and its sections. A section without a file lives in memory only."""

    folder: Path | None = RESULTS
    sections: Facts = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path | None) -> Record:
        file = folder / "scale.json" if folder else None
        return cls(folder, json.loads(file.read_text()) if file and file.exists() else {})

    def put(self, part: str, facts: Mapping[str, Any]) -> None:
        """Replace one section and write the file at once, so that what has been measured stays whatever follows.

        Storages that these facts say nothing of keep theirs, if they were measured at the same sizes.
        """
        old = self.sections.get(part, {})
        kept = old if _is_alike(old, facts) else {}
        self.sections[part] = {**kept, "date": datetime.date.today().isoformat(), "machine": machine(), **facts}
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "scale.json").write_text(json.dumps(self.sections, indent=1) + "\n")

    def get(self, part: str) -> Facts:
        found: Facts = self.sections.get(part, {})
        return found


def _is_alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two sections are of the same sizes: their whole numbers agree."""
    return all(old.get(name) == value for name, value in new.items() if isinstance(value, int))


def machine() -> str:
    """A line on what it ran on."""
    busy = f"load average at the end {os.getloadavg()[0]:.1f}"  # of this run, and of what else ran on the machine
    return f"{os.cpu_count()} cores, Python {platform.python_version()} on {platform.system()}, {busy}"


class Progress:
    """Lines on stderr: what is done now, the time since the start, and about how much is left.

    `expected` are the seconds that each step took on a quiet machine with two cores; what remains is scaled by how
    long the steps took here that are over.
    """

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._expected = dict(expected)
        self._begin = time.monotonic()
        self._over = 0.0
        self._step = ""
        self._told = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def begin(self, step: str) -> None:
        self._over += self._expected.pop(self._step, 0.0)
        self._step = step
        self.tell("begins")

    def tell(self, text: str, *, often: bool = False) -> None:
        """With `often`, at most twice a second is printed."""
        now = time.monotonic()
        if often and now - self._told < 0.5:
            return
        self._told = now
        spent = now - self._begin
        left = sum(self._expected.values()) * (max(0.3, spent / self._over) if self._over > 10 else 1.0)
        end = "\r" if sys.stderr.isatty() else "\n"
        line = f"[{_clock(spent)}, at most {_clock(left)} left] {self._step}: {text}"
        print(f"{line:<100}", end=end, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
