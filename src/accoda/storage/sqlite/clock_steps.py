"""Steps of the machine's clock, which is the store's clock here.

A lease of a minute should last a minute, whatever is done to the clock meanwhile. So the file has a row with the offset
of the wall clock from the time since boot, which nobody can set. NTP slews both clocks alike, so on Linux only a step
changes the offset. Every transaction reads both clocks; if the offset is not the one that its process saw in the row,
the row is read again, and if that has the old one too, the moments that the old clock made are moved.

- Set forward: ends of leases and of documents move with it.
- Set back: ends of leases, documents and pauses, and the starts of delayed jobs move with it.

Exactly once, and before anything due is applied: the row is read and written, and the moments are moved, at the start
of a transaction that holds the file's write lock. Every other process reads the row under the same lock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from accoda.clock import SystemClock
from accoda.storage.sqlite.transaction import Transaction

log = logging.getLogger("accoda.storage.sqlite")

STEP = 1000
"""Milliseconds: a larger change of the offset is a step. (A leap second is not.)"""
NOTICED = 500_000_000
"""Nanoseconds of change after which the row is looked at. A slow drift gets there first, and renews the row."""
_CLOSE = 10_000_000  # ns between two readings of one clock that count as one moment

boot_time: Callable[[], int] = time.monotonic_ns
"""Nanoseconds since the machine was started, including those in which it slept. (Not a function of ours: it is called
in every transaction.)"""
if hasattr(time, "CLOCK_BOOTTIME"):
    boot_time = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)


def find_boot_id(proc: Path = Path("/proc")) -> str:
    """Names this boot of this machine: offsets of two boots cannot be compared. Empty: it cannot be told.

    A container may have a time since boot of its own, and shares the boot id of its machine.
    """
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        spaces = proc / "self/ns/time"
        return f"{boot} {spaces.readlink()}" if spaces.is_symlink() else boot
    except OSError:
        return ""


class HostClock(SystemClock):
    """The machine's wall clock and its time since boot, both in nanoseconds. Tests give their own."""

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        boot: Callable[[], int] = boot_time,
        boot_id: str | None = None,
    ) -> None:
        self.wall = wall
        self.boot = boot
        self.boot_id = find_boot_id() if boot_id is None else boot_id

    def now(self) -> int:
        return self.wall() // 1_000_000

    def offset(self) -> int:
        """Wall clock minus time since boot, in nanoseconds, both of the same moment."""
        while True:
            before = self.boot()
            wall = self.wall()
            if self.boot() - before < _CLOSE:  # else the process was stopped in between
                return wall - before

    def steady(self, moment: int) -> float:
        """A moment of the wall clock, as it is now, by `time.monotonic`, in milliseconds."""
        return moment - (self.wall() - time.monotonic_ns()) / 1_000_000


def apply_step(tx: Transaction, host: HostClock, path: Path) -> int:
    """Move what a step of the clock has made wrong, unless that is done. Gives the offset that is in the row now."""
    offset = host.offset()
    milliseconds = offset // 1_000_000
    row = tx.row("host_clock")
    if row is None or row[0] != host.boot_id.encode():  # a new file, a reboot, or another machine
        tx.run("set_host_clock", host.boot_id, milliseconds)
        return offset
    step = milliseconds - row[1]
    if abs(step) > STEP:
        _move(tx, step)
        tx.run("note_step", milliseconds, tx.now, step)
        log.warning("%s", told(step, str(path)))
    elif abs(step) * 1_000_000 > NOTICED:
        tx.run("set_host_clock", host.boot_id, milliseconds)
    else:  # another process was here before
        return int(row[1]) * 1_000_000
    return offset


def _move(tx: Transaction, step: int) -> None:
    for number, name in tx.rows("queue_names"):
        tx.run("move_leases", number, step)
        if step < 0:
            tx.run("move_delayed", number, step)
        tx.touched.add(name.decode("utf-8", "replace"))  # those that sleep look again
    if step < 0:
        tx.run("move_pauses", step)
    tx.run("move_documents", step)


def told(step: int, name: str) -> str:
    """What a person should know of a step."""
    if step > 0:
        done = "leases were moved with it; delayed jobs whose time has come by the new clock start now"
    else:
        done = "leases, delayed jobs and pauses were moved with it"
    return f"the clock of {name} was set {'forward' if step > 0 else 'back'} by {abs(step) / 1000:.1f} s: {done}"
