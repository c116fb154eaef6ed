"""What the harness tells its processes, through their environment, and the file in which they write what they did."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

VARIABLE = "CHAOS_DEMAND"
MANY = 10_000
"""Crashes that a good job may have: here it is never its own fault."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`folder` has the file `lines`, the order to die (`doom`) and the histories, if `recorded`.

    `first` and `count` are the waiters of one process of people; with `seconds` they come and go for that long, by
    `seed`.
    """

    folder: str
    lease: float = 10.0
    fresh_for: float = 60.0
    fetch_for: float = 0.3
    deliver_for: float = 0.0
    batch: int = 50
    max_crashes: int = MANY
    keys: int = 1
    recorded: bool = False
    name: str = "worker"
    first: int = 0
    count: int = 0
    seconds: float = 0.0
    seed: int = 0

    @classmethod
    def of_environment(cls) -> Settings:
        return msgspec.json.decode(os.environ[VARIABLE], type=cls)

    def environment(self) -> Mapping[str, str]:
        return {VARIABLE: msgspec.json.encode(self).decode()}

    @property
    def lines(self) -> Path:
        return Path(self.folder) / "lines"

    @property
    def doom(self) -> Path:
        return Path(self.folder) / "doom"


class Line(NamedTuple):
    """What happened to a key or a waiter (`subject`), in which job and in which attempt, and when (nanoseconds)."""

    what: str
    subject: str
    job: int
    attempts: int
    pid: int
    at: int


class Pen:
    """Appends lines. One small O_APPEND write is whole or not there, also when the process is killed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, subject: str, job: int = 0, attempts: int = 0) -> None:
        os.write(self._file, f"{what} {subject} {job} {attempts} {os.getpid()} {time.monotonic_ns()}\n".encode())


def read_lines(path: Path) -> list[Line]:
    if not path.exists():
        return []
    rows = (line.split(" ") for line in path.read_text().splitlines())
    return [Line(what, subject, int(job), int(tries), int(pid), int(at)) for what, subject, job, tries, pid, at in rows]
