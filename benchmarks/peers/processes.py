"""What processes use: processor time and memory, by what Linux tells of them. Elsewhere nothing is known."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def session(leader: int) -> list[int]:
    """The processes of a session: a worker with all that it started, wherever in the tree they are."""
    return [pid for pid in _all() if _field(pid, 6) == leader]


def family(parent: int) -> list[int]:
    """A server and its children: PostgreSQL has a process for each connection."""
    return [parent, *(pid for pid in _all() if _field(pid, 4) == parent)]


def processor_seconds(pids: Iterable[int]) -> float | None:
    """What they have used so far, with the children that they have waited for; None where nothing is known.

    The clock of another process is exact, and counts threads that have ended; the tables in /proc count in ticks of
    10 ms, which is good enough for children that have ended.
    """
    if not PROC.exists():
        return None
    return sum(_clock(pid) + (_field(pid, 16) + _field(pid, 17)) / TICKS for pid in pids)


def memory(pids: Iterable[int]) -> int | None:
    """Bytes in RAM, where a page that several share counts once in all."""
    if not PROC.exists():
        return None
    return sum(_proportional(pid) for pid in pids)


def _clock(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | 2)  # how Linux writes "the processor clock of this process"
    except OSError:
        return 0.0  # it has ended: its parent has its time


def _field(pid: int, number: int) -> int:
    """A number of /proc/PID/stat, counted from 1 as its manual page does; the name in field 2 may hold anything."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[number - 3])


def _proportional(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")]
    return found[0] if found else 0


def _all() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()] if PROC.exists() else []
