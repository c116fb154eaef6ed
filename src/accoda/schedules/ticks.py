"""The ticks of a schedule, and which of them get a job. Pure; moments are milliseconds.

Nothing here walks from tick to tick over a gap: a gap of a year costs no more than one of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from accoda.schedules.cron import Cron

NEVER = 253_402_300_799_000
"""The end of the year 9999: when a paused schedule would tick."""


class Ticks(Protocol):
    """A set of moments."""

    def after(self, moment: int) -> int | None:
        """The first tick later than a moment."""
        ...

    def last(self, moment: int) -> int | None:
        """The last tick at or before a moment."""
        ...


class Interval(Struct, frozen=True):
    """Tick n is start + n × every, so that ticks do not drift when they are done late.

    >>> Interval(start=1000, every=300).after(1300), Interval(start=1000, every=300).last(1299)
    (1600, 1000)
    """

    start: int
    every: int

    def after(self, moment: int) -> int | None:
        return self.start + max(0, (moment - self.start) // self.every + 1) * self.every

    def last(self, moment: int) -> int | None:
        return None if moment < self.start else self.start + (moment - self.start) // self.every * self.every


class Calendar(Struct, frozen=True):
    """The ticks of a cron expression."""

    cron: Cron

    def after(self, moment: int) -> int | None:
        found = self.cron.after(moment // 1000)
        return None if found is None else found * 1000

    def last(self, moment: int) -> int | None:
        found = self.cron.last(moment // 1000)
        return None if found is None else found * 1000


class Bounded(Struct, frozen=True):
    """The ticks from `first` to `end`."""

    ticks: Ticks
    first: int = 0
    end: int = NEVER - 1

    def after(self, moment: int) -> int | None:
        found = self.ticks.after(max(moment, self.first - 1))
        return None if found is None or found > self.end else found

    def last(self, moment: int) -> int | None:
        found = self.ticks.last(min(moment, self.end))
        return None if found is None or found < self.first else found


def following(ticks: Ticks, moment: int, count: int) -> Iterator[int]:
    """The next `count` ticks after a moment."""
    for _ in range(count):
        found = ticks.after(moment)
        if found is None:
            return
        yield (moment := found)
